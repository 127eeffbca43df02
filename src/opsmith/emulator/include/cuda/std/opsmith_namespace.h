// The namespace that CUDA's own standard library is in. Here it is the compiler's.
#pragma once

namespace cuda::std {
using namespace ::std;
}
