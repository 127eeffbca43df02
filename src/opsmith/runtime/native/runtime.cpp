// The C++ runtime's C interface: functions that runtime/native.py calls to attach operators to the dispatcher.
//
// Built for one minor release of torch, on its C++ API; compiles with torch 2.11 to 2.15. No Python here: what needs
// Python (the reference, a check, an error message) is called through the dispatcher.

#include <cstring>
#include <mutex>

#include "autocast.h"
#include "entry.h"
#include "generated_entry.h"
#include "gradients.h"

#include <torch/headeronly/version.h>

#define OPSMITH_EXPORT_C extern "C" __attribute__((visibility("default")))

namespace opsmith {
namespace {

thread_local std::string last_error;

// An operator's registrations, which last as long as this object does.
struct Attachment {
  std::shared_ptr<Record> record;
  std::vector<std::unique_ptr<torch::Library>> libraries;
  std::array<std::shared_ptr<Generated>, kDevices> generated;

  template <typename Functor, typename... Rest>
  void implement(c10::DispatchKey key, Rest... rest) {
    const size_t colons = record->name.find("::");
    libraries.push_back(std::make_unique<torch::Library>(
        torch::Library::IMPL, record->name.substr(0, colons), key, __FILE__, __LINE__));
    libraries.back()->impl(
        record->name.substr(colons + 2).c_str(),
        torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Functor>(record, rest...)));
  }
};

c10::OperatorHandle find(const char* name) { return c10::Dispatcher::singleton().findSchemaOrThrow(name, ""); }

std::mutex one_at_a_time;  // Python calls these functions without its lock.

// Runs `body`; false and a message in opsmith_last_error if it throws.
template <typename Body>
bool guarded(Body&& body) {
  std::lock_guard<std::mutex> lock(one_at_a_time);
  try {
    body();
    return true;
  } catch (const std::exception& error) {
    last_error = error.what();
    return false;
  }
}

}  // namespace
}  // namespace opsmith

using namespace opsmith;

#define OPSMITH_TEXT_OF(number) #number
#define OPSMITH_TEXT(number) OPSMITH_TEXT_OF(number)

// "2.13": the release of torch that this library was compiled against. Loading it into another may succeed.
OPSMITH_EXPORT_C const char* opsmith_torch_release() {
  return OPSMITH_TEXT(TORCH_VERSION_MAJOR) "." OPSMITH_TEXT(TORCH_VERSION_MINOR);
}

OPSMITH_EXPORT_C const char* opsmith_last_error() { return last_error.c_str(); }

// `kinds`: one letter per argument (Kind). `mutated`, `inert`: '1' or '0' per argument.
OPSMITH_EXPORT_C void* opsmith_attach(
    const char* name, const char* kinds, const char* mutated, const char* inert, bool returns_list) {
  auto attachment = std::make_unique<Attachment>();
  const bool done = guarded([&] {
    auto record = std::make_shared<Record>(name, find(name));
    record->returns_list = returns_list;
    bool mutates = false;
    for (size_t i = 0; i < std::strlen(kinds); ++i) {
      record->arguments.push_back({static_cast<Kind>(kinds[i]), mutated[i] == '1', inert[i] == '1'});
      mutates |= mutated[i] == '1';
    }
    attachment->record = record;
    attachment->implement<GradientKernel>(c10::DispatchKey::Autograd);
    if (mutates) attachment->implement<VersionKernel>(c10::DispatchKey::ADInplaceOrView);
  });
  return done ? attachment.release() : nullptr;
}

OPSMITH_EXPORT_C void opsmith_detach(void* handle) {
  auto* attachment = static_cast<Attachment*>(handle);
  attachment->record->closed = true;
  delete attachment;
}

OPSMITH_EXPORT_C bool opsmith_set_backward(void* handle, const char* name) {
  return guarded([&] {
    static_cast<Attachment*>(handle)->record->backward.set(std::make_unique<c10::OperatorHandle>(find(name)));
  });
}

// `situation`: a device and a dtype class. `passthrough`: a letter per tensor, 'a' for the first result, '-' for none.
OPSMITH_EXPORT_C bool opsmith_set_saves(
    void* handle, size_t situation, const char* arguments, const char* results, const char* passthrough) {
  return guarded([&] {
    auto saves = std::make_unique<Saves>();
    for (const char* flag = arguments; *flag != '\0'; ++flag) saves->arguments.push_back(*flag == '1');
    for (const char* flag = results; *flag != '\0'; ++flag) saves->results.push_back(*flag == '1');
    for (const char* place = passthrough; *place != '\0'; ++place) saves->passthrough.push_back(*place - 'a');
    static_cast<Attachment*>(handle)->record->saves.at(situation).set(std::move(saves));
  });
}

OPSMITH_EXPORT_C bool opsmith_set_saves_suffice(void* handle, bool suffice) {
  return guarded([&] { static_cast<Attachment*>(handle)->record->saves_suffice = suffice; });
}

// Registers the entry on a device's key, with no kernel yet: calls go to Python until opsmith_set_kernel.
OPSMITH_EXPORT_C bool opsmith_enter(void* handle, size_t device) {
  return guarded([&] {
    const c10::DispatchKey key = device == 0 ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA;
    static_cast<Attachment*>(handle)->implement<EntryKernel>(key, device);
  });
}

OPSMITH_EXPORT_C bool opsmith_set_kernel(
    void* handle, size_t device, const char* name, const size_t* positions, size_t count, bool contiguous,
    bool keeps_layout, bool may_decline) {
  return guarded([&] {
    std::unique_ptr<Kernel> kernel;
    if (name != nullptr) {
      kernel.reset(new Kernel{find(name), std::vector<size_t>(positions, positions + count), contiguous, keeps_layout,
                              may_decline});
    }
    static_cast<Attachment*>(handle)->record->kernels.at(device).set(std::move(kernel));
  });
}

OPSMITH_EXPORT_C bool opsmith_attach_autocast(void* handle, size_t device) {
  return guarded([&] {
    const c10::DispatchKey key = device == 0 ? c10::DispatchKey::AutocastCPU : c10::DispatchKey::AutocastCUDA;
    static_cast<Attachment*>(handle)->implement<AutocastKernel>(key, device);
  });
}

OPSMITH_EXPORT_C bool opsmith_set_autocast(void* handle, size_t device, int cast, int dtype) {
  return guarded([&] {
    auto policy = std::make_unique<Policy>(Policy{static_cast<Cast>(cast), static_cast<at::ScalarType>(dtype)});
    static_cast<Attachment*>(handle)->record->policies.at(device).set(std::move(policy));
  });
}

// --- generated kernels -----------------------------------------------------------------------------------------------

// Registers the entry for generated kernels on a device's key. `statics`: '1' for an argument whose value is compiled
// in.
OPSMITH_EXPORT_C bool opsmith_enter_generated(void* handle, size_t device, const char* statics) {
  return guarded([&] {
    auto* attachment = static_cast<Attachment*>(handle);
    auto generated = std::make_shared<Generated>();
    generated->record = attachment->record;
    generated->device = device;
    generated->owner = handle;
    for (const char* flag = statics; *flag != '\0'; ++flag) generated->statics.push_back(*flag == '1');
    attachment->generated.at(device) = generated;
    const c10::DispatchKey key = device == 0 ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA;
    attachment->implement<GeneratedEntry>(key, device, generated);
  });
}

// Whether generated kernels run, or one that the author has written since.
OPSMITH_EXPORT_C bool opsmith_set_generated(void* handle, size_t device, bool active) {
  return guarded([&] { static_cast<Attachment*>(handle)->generated.at(device)->active = active; });
}

// Whether this thread is in a call of the operator that C++ could run if it knew the kernel.
OPSMITH_EXPORT_C int64_t opsmith_is_pending(void* handle, size_t device) {
  return Pending::of(handle, device) != nullptr;
}

// The program that runs that call: see generate/publish.py for the numbers.
OPSMITH_EXPORT_C bool opsmith_publish_program(
    void* handle, size_t device, uint64_t name, const int64_t* numbers, size_t count) {
  return guarded([&] {
    Pending* pending = Pending::of(handle, device);
    if (pending == nullptr) return;
    std::unique_ptr<Prepared>& prepared = pending->generated->programs[name];
    if (prepared == nullptr) {
      prepared = std::make_unique<Prepared>();
      read_prepared({numbers, count}, *prepared);
    }
    if (!prepared->program.fits()) return;
    pending->generated->by_arguments.add(pending->key->bytes, pending->key->size, prepared.get());
  });
}

// A kernel of a program published before. `layout`: the bytes of a LayoutClass.
OPSMITH_EXPORT_C bool opsmith_publish_kernel(
    void* handle, size_t device, uint64_t name, const uint8_t* layout, size_t size, void* function,
    int64_t very_few, int64_t few, int64_t some, int64_t many) {
  return guarded([&] {
    Pending* pending = Pending::of(handle, device);
    if (pending == nullptr) return;
    pending->generated->programs.at(name)->kernels.add(layout, size, Loaded{function, {very_few, few, some, many}});
  });
}

// The kernel that adds partial sums into this number of results of a dtype.
OPSMITH_EXPORT_C bool opsmith_publish_combine(size_t device, int index, int dtype, int results, void* function) {
  return guarded([&] {
    const uint8_t key[] = {static_cast<uint8_t>(device), static_cast<uint8_t>(index), static_cast<uint8_t>(dtype),
                           static_cast<uint8_t>(results)};
    Devices::get().combines.add(key, sizeof key, Loaded{function});
  });
}

OPSMITH_EXPORT_C bool opsmith_publish_tuning(const Tuning* tuning) {
  return guarded([&] { Devices::get().tuning = *tuning; });
}

OPSMITH_EXPORT_C bool opsmith_publish_gpu(size_t index, int64_t multiprocessors, int64_t cluster, bool overlaps) {
  return guarded([&] {
    Devices::get().clusters.at(index) = cluster;
    Devices::get().overlaps.at(index) = overlaps;
    Devices::get().multiprocessors.at(index) = multiprocessors;
  });
}
