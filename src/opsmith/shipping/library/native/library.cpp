// A package's operators as one shared library on torch's stable ABI. Loading it registers schemas and kernels; nothing
// else is needed.
//
// The process may already have the operators, because the Python package is imported or another build of the library
// is loaded. The first definition stays, and a difference is reported on stderr: an exception cannot leave dlopen.

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "operators.h"

namespace opsmith::shipped {
namespace {

// What Python finds by calling NAMESPACE::_opsmith_library() -> int: runtime/shipped.py has the same structure.
struct Interface {
  int64_t version;
  const char* package;
  void (*withdraw)(const char* name);  // The operator's kernels are no longer the library's; its schema stays.
};

class Library {
 public:
  static Library& get() {
    static Library& library = *new Library;  // Never destroyed: torch may call an operator while the process ends.
    return library;
  }

  void publish(const LibraryData& data, const Boxed (*entries)[2]) {
    package_ = data.package;
    std::memcpy(&Devices::get().tuning, data.tuning.items, sizeof(Tuning));
    Combines::get().take(data);
    interface_ = {1, package_, [](const char* name) {
                    if (Operator* found = get().find(name)) found->end_registrations();
                  }};
    for (const HostData& each : data.hosts) hosts_.emplace_back(each);
    for (const OperatorData& each : data.operators) operators_.emplace_back(package_, each);
    for (size_t i = 0; i < operators_.size(); ++i) {
      Operator& each = operators_[i];
      const std::string space = each.name.substr(0, each.name.find("::"));
      if (!define(space, each)) continue;
      if (each.has_kernels(kCpu)) implement(space, each, "CPU", entries[i][kCpu]);
      if (each.has_kernels(kGpu)) implement(space, each, "CUDA", entries[i][kGpu]);
    }
  }

  void run(size_t which, int device, uint64_t* stack) {
    Operator& called = operators_[which];
    guarded(called.name.c_str(), [&] { called.run(stack, device); });
  }

  Operator* find(const std::string& name) {
    for (Operator& each : operators_) {
      if (each.name == name || each.name.substr(each.name.find("::") + 2) == name) return &each;
    }
    return nullptr;
  }

 private:
  static void interface_of(StableIValue* stack, uint64_t, uint64_t) {
    stack[0] = torch::stable::detail::from(reinterpret_cast<int64_t>(&get().interface_));
  }

  // --- registration ----------------------------------------------------------------------------------------------

  // False: the operator is in the process already.
  bool define(const std::string& space, Operator& each) {
    if (const std::optional<std::string> declared = declared_by_python(each.name)) {
      const std::string own = space + "::" + each.schema;
      if (*declared != own) report(each, ("the imported package declares it as " + *declared).c_str());
      return false;
    }
    if (definitions_.count(space) == 0) {
      TorchLibraryHandle made = nullptr;
      check(aoti_torch_library_init_fragment(space.c_str(), package_, 0, &made), "aoti_torch_library_init_fragment");
      definitions_[space] = made;
      others_[space] = aoti_torch_library_def(made, "_opsmith_library() -> int") != AOTI_TORCH_SUCCESS;
      if (others_[space]) {
        report(each, "another library of this namespace is loaded");
      } else {
        TorchLibraryHandle kernels = nullptr;
        check(aoti_torch_library_init_impl(space.c_str(), "CompositeExplicitAutograd", package_, 0, &kernels),
              "aoti_torch_library_init_impl");
        check(torch_library_impl(kernels, "_opsmith_library", &interface_of, TORCH_ABI_VERSION), "torch_library_impl");
      }
    }
    if (others_[space]) return false;
    if (define_with_tag(definitions_[space], each.schema.c_str())) return true;
    report(each, "an operator of this name exists");
    return false;
  }

  static bool define_with_tag(TorchLibraryHandle definitions, const char* schema) {
    // Tags are new in torch 2.12: a library that links to these functions would not load in torch 2.11.
    void* torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    const auto tag = reinterpret_cast<int32_t (*)()>(dlsym(torch, "torch_tag_pt2_compliant_tag"));
    const auto tagged = reinterpret_cast<AOTITorchError (*)(TorchLibraryHandle, const char*, const int32_t*, int32_t)>(
        dlsym(torch, "torch_library_def_with_tags"));
    if (torch != nullptr && tag != nullptr && tagged != nullptr) {
      const int32_t tags[] = {tag()};
      return tagged(definitions, schema, tags, 1) == AOTI_TORCH_SUCCESS;
    }
    return aoti_torch_library_def(definitions, schema) == AOTI_TORCH_SUCCESS;
  }

  void implement(const std::string& space, Operator& each, const char* key, Boxed function) {
    TorchLibraryHandle made = nullptr;
    check(aoti_torch_library_init_impl(space.c_str(), key, package_, 0, &made), "aoti_torch_library_init_impl");
    const std::string base = each.name.substr(space.size() + 2);
    check(torch_library_impl(made, base.c_str(), function, TORCH_ABI_VERSION), "torch_library_impl");
    each.registrations.push_back(made);
  }

  // The schema of an operator that the imported package has declared.
  std::optional<std::string> declared_by_python(const std::string& name) {
    if (!declared_.has_value()) declared_ = declarations();
    for (const std::string& line : *declared_) {
      if (line.compare(0, name.size() + 1, name + "(") == 0) return line;
    }
    return std::nullopt;
  }

  // What runtime/shipped.py has written into an unnamed file, one schema per line.
  static std::vector<std::string> declarations() {
    std::vector<std::string> found;
    const std::filesystem::path own = "/proc/self/fd";
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(own, error)) {
      const std::string name = std::filesystem::read_symlink(entry.path(), error).string();
      if (name.rfind("/memfd:opsmith-declared", 0) != 0) continue;
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) found.push_back(line);
    }
    return found;
  }

  void report(const Operator& each, const char* reason) const {
    std::fprintf(stderr, "opsmith: the library of %s does not serve %s: %s. Load one of them only.\n", package_,
                 each.name.c_str(), reason);
  }

  const char* package_ = "";
  std::deque<Operator> operators_;
  std::deque<HostCode> hosts_;
  std::optional<std::vector<std::string>> declared_;
  std::map<std::string, TorchLibraryHandle> definitions_;  // by namespace
  std::map<std::string, bool> others_;  // whether another library has the namespace
  Interface interface_{};
};

}  // namespace

void publish(const LibraryData& data, const Boxed (*entries)[2]) { Library::get().publish(data, entries); }
void run(size_t which, int device, uint64_t* stack) { Library::get().run(which, device, stack); }

}  // namespace opsmith::shipped

// Called by Python code that serves, as NAMESPACE::_NAME_reference, what no kernel of the library does.
extern "C" __attribute__((visibility("default"))) void opsmith_library_fallback(const char* name) {
  if (opsmith::shipped::Operator* found = opsmith::shipped::Library::get().find(name)) found->announce();
}
