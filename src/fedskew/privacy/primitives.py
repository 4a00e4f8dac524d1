"""What the protocol takes from the package ``cryptography``: X25519, HKDF, ChaCha20 and ChaCha20-Poly1305, on bytes."""

from typing import Any

from fedskew.errors import of_extra

KEY = 32  # bytes of a secret or public key and of a seed
TAG = 16  # bytes that encryption adds


def _of(module: str, name: str) -> Any:
    return getattr(of_extra("secure", f"cryptography.hazmat.primitives.{module}", "a secure sum"), name)


def public(secret: bytes) -> bytes:
    """The public key of a secret one."""
    key: bytes = _private(secret).public_key().public_bytes_raw()
    return key


def _private(secret: bytes) -> Any:
    return _of("asymmetric.x25519", "X25519PrivateKey").from_private_bytes(secret)


def agree(secret: bytes, other: bytes, context: bytes) -> bytes:
    """The key that two clients have in common: HKDF-SHA256 of their X25519 secret.

    Args:
        secret: Own secret key.
        other: Public key of the other.
        context: What the key is for, in the same bytes on both sides.

    Returns:
        32 bytes.

    Raises:
        ValueError: The public key is one of those that give everybody the same secret.
    """
    shared = _private(secret).exchange(_of("asymmetric.x25519", "X25519PublicKey").from_public_bytes(other))
    key: bytes = _of("kdf.hkdf", "HKDF")(_of("hashes", "SHA256")(), KEY, None, b"fedskew " + context).derive(shared)
    return key


def seal(key: bytes, sender: int, text: bytes) -> bytes:
    """Encrypt what one of the two owners of a key sends to the other. A key seals one message of each sender."""
    sealed: bytes = _of("ciphers.aead", "ChaCha20Poly1305")(key).encrypt(_nonce(sender), text, None)
    return sealed


def unseal(key: bytes, sender: int, sealed: bytes) -> bytes | None:
    """The text of `seal`; None where key, sender or message is another."""
    try:
        text: bytes = _of("ciphers.aead", "ChaCha20Poly1305")(key).decrypt(_nonce(sender), sealed, None)
    except of_extra("secure", "cryptography.exceptions", "a secure sum").InvalidTag:
        return None
    return text


def _nonce(sender: int) -> bytes:
    return sender.to_bytes(12, "big")  # the two senders of a key differ


def stream(seed: bytes, size: int) -> bytes:
    """``size`` bytes of the ChaCha20 stream of a seed. A seed is used for one stream, so the nonce is 0."""
    cipher = _of("ciphers", "Cipher")(_of("ciphers.algorithms", "ChaCha20")(seed, bytes(16)), mode=None)
    made: bytes = cipher.encryptor().update(bytes(size))
    return made
