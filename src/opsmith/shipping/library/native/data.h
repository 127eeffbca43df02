// The contents of a package's library as constant data. The source that shipping/library/text.py writes includes only
// this header, so it compiles quickly. library.cpp reads the data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "../../../include/opsmith/host.h"

namespace opsmith::shipped {

constexpr int kCpu = 0, kGpu = 1;
constexpr int kLevels = 3;  // of processors: with AVX-512, with AVX2, with neither

using Kernel = void (*)(int64_t begin, int64_t end, void* parameters);
using Boxed = void (*)(uint64_t* stack, uint64_t inputs, uint64_t outputs);

template <typename Item>
struct Span {
  const Item* items = nullptr;
  size_t count = 0;

  constexpr Span() = default;
  template <size_t Count>
  constexpr Span(const Item (&items)[Count]) : items(items), count(Count) {}
  const Item* begin() const { return items; }
  const Item* end() const { return items + count; }
};

// A kernel for processors. `layout`: the bytes of a LayoutClass; null where a level has none.
struct CpuKernelData {
  Span<uint8_t> layout;
  Kernel at[kLevels];
};

// Code for one architecture: a cubin for 90, PTX for later GPUs. `is_exact`: as sm_90a, it runs on no other.
struct Image {
  int architecture;
  bool is_ptx;
  bool is_exact;
  const char* begin;
};

struct GpuKernelData {
  Span<uint8_t> layout;
  const char* entry;
  int64_t tiles[4];
  Span<Image> images;
};

// What runs one kind of call. `numbers`: the program; `key`: what the call's key is made of (add_to_key).
struct ProgramData {
  int device;
  Span<int64_t> numbers;
  Span<int64_t> key;
  Span<CpuKernelData> on_cpu;
  Span<GpuKernelData> on_gpu;
};

// A function of an extension, which takes some of the operator's arguments.
struct NativeData {
  int device;
  Boxed at[kLevels];
  Span<int> positions;
  bool contiguous;    // tensors are made contiguous first
  bool keeps_layout;  // results would follow the layout of the original ones, which only Python can do
};

// `types`: a letter for each argument (values.h); `statics`: '1' for those that are compiled in (generate/trace.py); `names`: of the
// arguments, separated by spaces; `results`: 't' for each tensor, 'l' for a list.
struct OperatorData {
  const char* name;    // "mylib::scale"
  const char* schema;  // "scale(Tensor x, float factor) -> Tensor"
  const char* names;
  const char* types;
  const char* statics;
  const char* results;
  bool depends_on_default_dtype;
  Span<ProgramData> programs;
  Span<NativeData> natives;
};

// The kernels that add partial sums, by dtype, and for GPUs by number of results.
struct CpuCombineData {
  int dtype;
  Kernel at[kLevels];
};
struct GpuCombineData {
  int dtype;
  int jobs;
  GpuKernelData kernel;
};

// A kernel that host code launches by its name.
struct NamedKernelData {
  const char* name;
  const char* declared;
  const char* entry;
  Span<ParameterInfo> parameters;
  Span<Image> images;
};

// The host code of an extension. `set`: null if it includes none of opsmith's headers.
struct HostData {
  void (*set)(const Host* host);
  Span<NamedKernelData> kernels;
};

struct LibraryData {
  const char* package;
  Span<int64_t> tuning;
  Span<CpuCombineData> combines_on_cpu;
  Span<GpuCombineData> combines_on_gpu;
  Span<OperatorData> operators;
  Span<HostData> hosts;
};

// Registers the operators. `entries`: for each operator the functions that torch calls on the CPU and on GPUs.
void publish(const LibraryData& data, const Boxed (*entries)[2]);
void run(size_t which, int device, uint64_t* stack);

// torch gives a boxed function no context, so each operator has functions of its own.
template <size_t Which, int Device>
void entry(uint64_t* stack, uint64_t, uint64_t) {
  run(Which, Device, stack);
}

template <size_t... Which>
void publish_all(const LibraryData& data, std::index_sequence<Which...>) {
  static constexpr Boxed entries[][2] = {{&entry<Which, kCpu>, &entry<Which, kGpu>}...};
  publish(data, entries);
}

}  // namespace opsmith::shipped
