// The C++ tier's door: plain C functions that runtime/native.py calls to attach operators to the dispatcher.
//
// Built for the installed torch, on its C++ API; works on torch 2.11 to 2.13. No Python here: where Python is needed (the
// reference, a check, a message) it is an operator too, called by its handle.

#include <cstring>
#include <mutex>

#include "autocast.h"
#include "entry.h"
#include "gradients.h"

#define OPSMITH_EXPORT_C extern "C" __attribute__((visibility("default")))

namespace opsmith {
namespace {

thread_local std::string last_error;

// An operator's registrations, which last as long as this object does.
struct Attachment {
  std::shared_ptr<Record> record;
  std::vector<std::unique_ptr<torch::Library>> libraries;

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

// Runs `body`; false and a message in opsmith_last_error where it throws.
template <typename Body>
bool guarded(Body&& body) {
  static std::mutex one_at_a_time;  // Python calls these functions without its lock.
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

OPSMITH_EXPORT_C const char* opsmith_last_error() { return last_error.c_str(); }

// `kinds`: a letter an argument (Kind). `mutated`, `inert`: '1' or '0' an argument.
OPSMITH_EXPORT_C void* opsmith_attach(
    const char* name, const char* open, const char* twin, const char* kinds, const char* mutated, const char* inert,
    bool returns_list) {
  auto attachment = std::make_unique<Attachment>();
  const bool done = guarded([&] {
    auto record = std::make_shared<Record>(name, find(open), find(twin));
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

OPSMITH_EXPORT_C bool opsmith_set_saves(void* handle, size_t device, const char* arguments, const char* results) {
  return guarded([&] {
    auto saves = std::make_unique<Saves>();
    for (const char* flag = arguments; *flag != '\0'; ++flag) saves->arguments.push_back(*flag == '1');
    for (const char* flag = results; *flag != '\0'; ++flag) saves->results.push_back(*flag == '1');
    static_cast<Attachment*>(handle)->record->saves.at(device).set(std::move(saves));
  });
}

// Puts the entry on a device's key, with no kernel yet: the twin serves until opsmith_set_kernel.
OPSMITH_EXPORT_C bool opsmith_enter(void* handle, size_t device) {
  return guarded([&] {
    const c10::DispatchKey key = device == 0 ? c10::DispatchKey::CPU : c10::DispatchKey::CUDA;
    static_cast<Attachment*>(handle)->implement<EntryKernel>(key, device);
  });
}

OPSMITH_EXPORT_C bool opsmith_set_kernel(
    void* handle, size_t device, const char* name, const size_t* positions, size_t count, bool contiguous) {
  return guarded([&] {
    std::unique_ptr<Kernel> kernel;
    if (name != nullptr) {
      kernel.reset(new Kernel{find(name), std::vector<size_t>(positions, positions + count), contiguous});
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
