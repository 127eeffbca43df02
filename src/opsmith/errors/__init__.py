"""Every error and warning a user of opsmith can meet: what happened, where, and how to fix it.

Each class names one mistake. Classes mix in TypeError, ValueError or RuntimeError where Python users would catch those.
"""

from __future__ import annotations

from .base import OpsmithError, OpsmithWarning, SourceLine, definition, described, quoted
from .building import (
    BuildSettingError,
    ExtensionArgumentError,
    OperatorsRegisteredError,
    UnknownFunctionError,
)
from .calling import (
    ArgumentError,
    DeviceMixError,
    InPlaceGradientError,
    InvalidSampleError,
    KernelResultError,
    OutArgumentError,
    OutGradientError,
    RedeclaredError,
    ReferenceRunsWarning,
    RuntimeTierError,
    SamplesMissingError,
    SharedMemoryError,
    UnknownKernelError,
    UnknownOpError,
    UnsavedInputError,
)
from .checking import CheckOptionError, NotAnOperatorError, NotAnOpError, SeveralOverloadsError
from .declaring import (
    InvalidNameError,
    NameTakenError,
    NotGeneratedError,
    NotPointwiseError,
    OutMismatchError,
    RandomReferenceError,
    ReferenceResultError,
    SignatureError,
    UndeclaredMutationError,
)
from .emulating import EmulationError, KernelFault, UnsupportedFeatureError
from .launching import (
    AmbiguousKernelError,
    ConstantError,
    CudaDriverError,
    KernelArgumentError,
    KernelNotFoundError,
    KernelValueError,
    LanguageMissingError,
    LaunchConfigurationError,
    LaunchError,
    NoGpuError,
    NumbaLaunchError,
)
from .measuring import ResultsFileError, UnavailableError, WrongResultError
from .registering import (
    AutocastDtypeError,
    AutocastPolicyError,
    DispatcherError,
    GradientTakenError,
    InlineKernelError,
    KernelNameError,
    KernelSignatureError,
    KernelTypeError,
    KeywordOnlyTensorError,
    LayoutError,
    NumbaDeviceFunctionError,
    NumbaKernelTypeError,
    NumbaStreamError,
    RegistrationError,
    SavesMissingError,
    UnknownDeviceError,
    UnknownSaveError,
)
from .scaffolding import FilesExistError, ScaffoldNameError, ScaffoldPlaceError
from .toolchain import (
    CacheError,
    CacheFallbackWarning,
    CacheSecurityError,
    CacheWarning,
    CompileError,
    CompilerBrokenError,
    CompilerCrashedError,
    CompilerNoOutputError,
    CompilerNotExecutableError,
    CompilerNotFoundError,
    CompilerOutOfMemoryError,
    CompilerSilentError,
    CompilerTooOldError,
    CorruptCacheEntryWarning,
    CudaHeadersNotFoundError,
    CudaVersionMismatchError,
    LoadError,
    LoadingFailedError,
    NoSourceError,
    NvccNotFoundError,
    NvrtcNotFoundError,
    PythonHeadersNotFoundError,
    SourceNotFoundError,
    ToolchainError,
    ToolMissingError,
    UnsupportedArchError,
)

__all__ = sorted(
    name for name, value in vars().items() if isinstance(value, type) and issubclass(value, (Exception, Warning))
)
