from .op import _template as _template
