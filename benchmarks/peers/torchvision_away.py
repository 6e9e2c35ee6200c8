"""torchvision out of sight: transformers imports it wherever it is, and here only torchdistill needs it.

Otherwise every side would hold it in memory, and where torch has no CUDA and torchvision was built with it, as the one
of the package index is, none could import transformers. `torchvision_declared` comes first where it is needed.
"""

from __future__ import annotations

import sys

sys.modules.setdefault("torchvision", None)  # type: ignore[arg-type]
