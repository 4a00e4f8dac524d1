"""Addresses of the project in its metadata, all derived from one variable of pyproject.toml."""

from __future__ import annotations

from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class Urls(MetadataHookInterface):
    """Fill `project.urls` from `repository` of `[tool.hatch.metadata.hooks.custom]`; without it there are none."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the addresses."""
        repository = str(self.config["repository"]).rstrip("/")
        pages = {
            "Source": repository,
            "Issues": f"{repository}/issues",
            "Changelog": f"{repository}/blob/main/CHANGELOG.md",
            "Documentation": self.config["documentation"] or f"{repository}/tree/main/docs",
        }
        metadata["urls"] = pages if repository else {}
