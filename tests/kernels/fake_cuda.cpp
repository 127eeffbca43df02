// A CUDA driver without a GPU: it loads real cubins, keeps the bytes of every launch, and fails on request.
// A kernel's parameters are read by the sizes that its cubin tells (.nv.info), as the driver itself does.
#include <elf.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kInvalidValue = 1, kInvalidContext = 201, kNotFound = 500, kNotPermittedInCapture = 900,
              kInvalidClusterSize = 912;
constexpr int kRelaxed = 2;

struct Library {
  std::string image;
  std::map<std::string, std::string> variables;  // their memory
  bool is_of_before = false;  // loaded before the last fake_reset

  const Elf64_Ehdr& header() const { return *reinterpret_cast<const Elf64_Ehdr*>(image.data()); }
  const Elf64_Shdr& section(int number) const {
    return reinterpret_cast<const Elf64_Shdr*>(image.data() + header().e_shoff)[number];
  }
  std::string name(const Elf64_Shdr& of) const {
    return image.data() + section(header().e_shstrndx).sh_offset + of.sh_name;
  }
  const Elf64_Shdr* find(const std::string& wanted) const {
    for (int i = 0; i < header().e_shnum; ++i)
      if (name(section(i)) == wanted) return &section(i);
    return nullptr;
  }
};

struct Kernel {
  Library* library;
  std::string name;
  std::vector<unsigned> sizes;  // of its parameters
  std::map<int, int> set;       // attributes
};

struct Recorded {
  std::string kernel, parameters;
  std::vector<unsigned> sizes;
  unsigned shape[7];
  void* stream;
  void* context;
  bool overlapped;
  unsigned cluster[3];  // zeros without one
};

struct Attribute {
  int id, padding, value[16];
};

struct Configuration {
  unsigned grid[3], block[3], shared;
  void* stream;
  const Attribute* attributes;
  unsigned attribute_count;
};

std::mutex mutex;
std::vector<std::unique_ptr<Library>> libraries;
std::vector<std::unique_ptr<Kernel>> kernels;
std::vector<Recorded> launches;
std::map<int, int> attributes, device_attributes;
int version;
std::map<std::string, std::vector<int>> failures;  // what the next calls of a function return
std::vector<std::string> calls;
bool capturing = false;
thread_local void* context = nullptr;
thread_local std::vector<void*> pushed;  // the contexts under the current one
thread_local int mode = 0;

// Takes note of a call and tells what it is to return.
int enter(const char* name) {
  std::lock_guard<std::mutex> guard(mutex);
  calls.push_back(name);
  auto& codes = failures[name];
  if (codes.empty()) return 0;
  const int code = codes.front();
  codes.erase(codes.begin());
  return code;
}

size_t image_size(const char* image) {
  const auto& header = *reinterpret_cast<const Elf64_Ehdr*>(image);
  size_t end = header.e_shoff + size_t{header.e_shnum} * header.e_shentsize;
  end = std::max<size_t>(end, header.e_phoff + size_t{header.e_phnum} * header.e_phentsize);
  const auto* sections = reinterpret_cast<const Elf64_Shdr*>(image + header.e_shoff);
  for (int i = 0; i < header.e_shnum; ++i)
    if (sections[i].sh_type != SHT_NOBITS) end = std::max<size_t>(end, sections[i].sh_offset + sections[i].sh_size);
  return end;
}

std::vector<unsigned> parameter_sizes(const Library& library, const std::string& kernel) {
  std::vector<unsigned> sizes;
  const Elf64_Shdr* section = library.find(".nv.info." + kernel);
  if (section == nullptr) return sizes;
  const char* at = library.image.data() + section->sh_offset;
  const char* end = at + section->sh_size;
  while (at + 4 <= end) {
    const uint8_t form = at[0], attribute = at[1];
    uint16_t length;
    std::memcpy(&length, at + 2, 2);
    at += 4;
    if (form != 4) continue;
    if (attribute == 0x17) {  // EIATTR_KPARAM_INFO: index, ordinal and offset, size in the upper bits
      uint16_t ordinal;
      uint32_t bits;
      std::memcpy(&ordinal, at + 4, 2);
      std::memcpy(&bits, at + 8, 4);
      if (sizes.size() <= ordinal) sizes.resize(ordinal + 1);
      sizes[ordinal] = bits >> 18;
    }
    at += length;
  }
  return sizes;
}

}  // namespace

API int cuGetErrorString(int code, const char** words) {
  static const std::map<int, const char*> known = {
      {1, "invalid argument"}, {201, "invalid device context"}, {209, "no kernel image is available for execution on the device"},
      {700, "an illegal memory access was encountered"}, {701, "too many resources requested for launch"}};
  *words = known.count(code) ? known.at(code) : nullptr;
  return *words == nullptr ? kInvalidValue : 0;
}
API int cuDriverGetVersion(int* given) { *given = version; return enter("cuDriverGetVersion"); }
API int cuDeviceGet(int* device, int index) { *device = index; return enter("cuDeviceGet"); }
API int cuDeviceGetAttribute(int* value, int attribute, int) {
  *value = device_attributes[attribute];
  return enter("cuDeviceGetAttribute");
}
API int cuDevicePrimaryCtxRetain(void** found, int device) {
  *found = reinterpret_cast<void*>(intptr_t{0x1000} + device);
  return enter("cuDevicePrimaryCtxRetain");
}
API int cuCtxGetCurrent(void** found) { *found = context; return enter("cuCtxGetCurrent"); }
API int cuCtxGetDevice(int* device) {
  *device = static_cast<int>(reinterpret_cast<intptr_t>(context) - 0x1000);
  const int code = enter("cuCtxGetDevice");
  return context == nullptr ? kInvalidContext : code;
}
API int cuCtxPushCurrent_v2(void* given) {
  pushed.push_back(context);
  context = given;
  return enter("cuCtxPushCurrent_v2");
}
API int cuCtxPopCurrent_v2(void** left) {
  *left = context;
  context = pushed.back();
  pushed.pop_back();
  return enter("cuCtxPopCurrent_v2");
}
API int cuStreamIsCapturing(void*, int* status) { *status = capturing; return enter("cuStreamIsCapturing"); }
API int cuCtxSetCurrent(void* given) { context = given; return enter("cuCtxSetCurrent"); }
API int cuThreadExchangeStreamCaptureMode(int* given) { std::swap(mode, *given); return enter("cuThreadExchangeStreamCaptureMode"); }
API int cuLibraryLoadData(void** found, const char* image, void*, void*, unsigned, void*, void*, unsigned) {
  if (const int code = enter("cuLibraryLoadData")) return code;
  if (capturing && mode != kRelaxed) return kNotPermittedInCapture;
  std::lock_guard<std::mutex> guard(mutex);
  libraries.push_back(std::make_unique<Library>());
  libraries.back()->image.assign(image, image_size(image));
  *found = libraries.back().get();
  return 0;
}
API int cuLibraryGetKernel(void** found, Library* library, const char* name) {
  if (const int code = enter("cuLibraryGetKernel")) return code;
  if (library->find(std::string(".text.") + name) == nullptr) return kNotFound;
  std::lock_guard<std::mutex> guard(mutex);
  kernels.push_back(std::make_unique<Kernel>(Kernel{library, name, parameter_sizes(*library, name), {}}));
  *found = kernels.back().get();
  return 0;
}
API int cuLibraryGetGlobal(void** address, size_t* size, Library* library, const char* name) {
  if (const int code = enter("cuLibraryGetGlobal")) return code;
  const Elf64_Shdr* symbols = library->find(".symtab");
  const char* names = library->image.data() + library->find(".strtab")->sh_offset;
  const auto* table = reinterpret_cast<const Elf64_Sym*>(library->image.data() + symbols->sh_offset);
  for (size_t i = 0; i < symbols->sh_size / sizeof(Elf64_Sym); ++i) {
    if (std::strcmp(names + table[i].st_name, name) != 0) continue;
    auto& memory = library->variables[name];
    memory.resize(table[i].st_size);
    *address = memory.data();
    *size = memory.size();
    return 0;
  }
  return kNotFound;
}
API int cuKernelGetFunction(void** found, void* kernel) { *found = kernel; return enter("cuKernelGetFunction"); }
API int cuKernelGetAttribute(int* value, int attribute, Kernel* kernel, int) {
  *value = kernel->set.count(attribute) ? kernel->set[attribute] : attributes[attribute];
  return enter("cuKernelGetAttribute");
}
API int cuKernelSetAttribute(int attribute, int value, Kernel* kernel, int) {
  kernel->set[attribute] = value;
  return enter("cuKernelSetAttribute");
}
API int cuLaunchKernelEx(const Configuration* configuration, Kernel* kernel, void** parameters, void** extra) {
  if (const int code = enter("cuLaunchKernelEx")) return code;
  if (context == nullptr) return kInvalidContext;
  if (extra != nullptr) return kInvalidValue;
  Recorded recorded{kernel->name, "", kernel->sizes, {}, configuration->stream, context, false, {}};
  for (unsigned i = 0; i < configuration->attribute_count; ++i) {
    const Attribute& attribute = configuration->attributes[i];
    if (attribute.id == 6 && attribute.value[0] == 1) {
      recorded.overlapped = true;
    } else if (attribute.id == 4) {
      std::memcpy(recorded.cluster, attribute.value, sizeof recorded.cluster);
      const unsigned* cluster = recorded.cluster;
      for (int axis = 0; axis < 3; ++axis)
        if (cluster[axis] == 0 || configuration->grid[axis] % cluster[axis] != 0) return kInvalidValue;
      // More than 8 need CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED.
      if (cluster[0] * cluster[1] * cluster[2] > 8 && kernel->set[14] == 0) return kInvalidClusterSize;
    } else {
      return kInvalidValue;
    }
  }
  std::memcpy(recorded.shape, configuration->grid, sizeof recorded.shape);
  for (size_t i = 0; i < kernel->sizes.size(); ++i)
    recorded.parameters.append(static_cast<const char*>(parameters[i]), kernel->sizes[i]);
  std::lock_guard<std::mutex> guard(mutex);
  launches.push_back(std::move(recorded));
  return 0;
}
API int cuStreamCreate(void** stream, unsigned) { *stream = reinterpret_cast<void*>(intptr_t{0x77}); return enter("cuStreamCreate"); }
API int cuStreamSynchronize(void*) { return enter("cuStreamSynchronize"); }
API int cuStreamDestroy_v2(void*) { return enter("cuStreamDestroy_v2"); }
API int cuMemcpyHtoDAsync_v2(void* to, const void* from, size_t size, void*) { std::memcpy(to, from, size); return enter("cuMemcpyHtoDAsync_v2"); }
API int cuMemcpyDtoDAsync_v2(void* to, const void* from, size_t size, void*) { std::memcpy(to, from, size); return enter("cuMemcpyDtoDAsync_v2"); }

// --- what the tests ask ---

API void fake_reset(void* current) {
  for (const auto& library : libraries) library->is_of_before = true;
  launches.clear();
  calls.clear();
  failures.clear();
  attributes = {{0, 1024}, {1, 0}, {2, 0}, {3, 0}, {4, 32}};
  device_attributes = {{16, 132}, {75, 9}, {76, 0}, {97, 232448}};
  capturing = false;
  version = 13000;
  context = current;
  mode = 0;
}
API void fake_attribute(int attribute, int value) { attributes[attribute] = value; }
API void fake_device_attribute(int attribute, int value) { device_attributes[attribute] = value; }
API void* fake_current() { return context; }
API void fake_version(int given) { version = given; }
API void fake_fail(const char* function, int code) { failures[function].push_back(code); }
API void fake_capturing(bool now) { capturing = now; }
API size_t fake_launches() { return launches.size(); }
API const char* fake_kernel(size_t i) { return launches[i].kernel.c_str(); }
API const unsigned* fake_shape(size_t i) { return launches[i].shape; }
API uint64_t fake_stream(size_t i) { return reinterpret_cast<uint64_t>(launches[i].stream); }
API uint64_t fake_context(size_t i) { return reinterpret_cast<uint64_t>(launches[i].context); }
API const unsigned* fake_cluster(size_t i) { return launches[i].cluster; }
API bool fake_overlapped(size_t i) { return launches[i].overlapped; }
API size_t fake_parameters(size_t i) { return launches[i].sizes.size(); }
API unsigned fake_size(size_t i, size_t parameter) { return launches[i].sizes[parameter]; }
API const char* fake_bytes(size_t i) { return launches[i].parameters.data(); }
API size_t fake_calls(const char* name) {
  size_t count = 0;
  for (const auto& call : calls) count += call == name;
  return count;
}
API size_t fake_variables(const char* name) {
  size_t count = 0;
  for (const auto& library : libraries) count += library->is_of_before ? 0 : library->variables.count(name);
  return count;
}
API const char* fake_variable(const char* name, size_t* size) {  // in the library loaded last that has it
  for (auto library = libraries.rbegin(); library != libraries.rend(); ++library) {
    const auto found = (*library)->variables.find(name);
    if ((*library)->is_of_before || found == (*library)->variables.end()) continue;
    *size = found->second.size();
    return found->second.data();
  }
  return nullptr;
}
