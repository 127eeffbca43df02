"""The ops, one folder each. A new folder is a new op; there is no list to add it to.

All are declared when the package is imported, because a saved program (torch.export, TorchScript) looks up its
operators by name. Kernels are compiled later, when they are first used.
"""

import importlib
import pkgutil

for _folder in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_folder.name}")
