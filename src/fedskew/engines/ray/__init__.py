"""The engine that trains clients in worker processes of a Ray cluster. It needs the extra ``ray``.

Ray is imported when an engine is made, never with fedskew.
"""

from fedskew.engines.ray.engine import Ray
from fedskew.engines.ray.pool import require_ray

__all__ = ["Ray", "require_ray"]
