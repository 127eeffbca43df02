// The operators of a shipped library, and which kernel a call runs: a generated one if the library has one for these
// arguments, else one of an extension, else the reference that Python has announced, else an error.
#pragma once

#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "call.h"
#include "gpu.h"
#include "hosts.h"

namespace opsmith::shipped {

// The level of this processor. ATEN_CPU_CAPABILITY lowers it, as it does for torch's own kernels.
inline int processor_level() {
  static const int level = [] {
#if defined(__x86_64__)
    const char* capability = std::getenv("ATEN_CPU_CAPABILITY");
    const std::string most = capability == nullptr ? "" : capability;
    if (most == "default") return 2;
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                        __builtin_cpu_supports("avx512cd");
    if (avx512 && most != "avx2") return 0;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) return 1;
#endif
    return 2;
  }();
  return level;
}

// The fastest function that this processor can run.
template <typename Function>
Function here(const Function (&functions)[kLevels]) {
  for (int level = processor_level(); level < kLevels; ++level) {
    if (functions[level] != nullptr) return functions[level];
  }
  return nullptr;
}

// Runs a function once on each GPU. Later calls, one in every call of an operator, take no lock. After an error the
// next call runs it again.
class OnceOnEachGpu {
 public:
  template <typename Action>
  void run(int index, Action&& action) {
    const uint64_t bit = uint64_t{1} << index;
    if (done_.load(std::memory_order_acquire) & bit) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (done_.load(std::memory_order_relaxed) & bit) return;
    action();
    done_.fetch_or(bit, std::memory_order_release);
  }

 private:
  static_assert(Devices::kMaxGpus <= 64, "a bit for each GPU");
  std::atomic<uint64_t> done_{0};
  std::mutex mutex_;
};

// The kernels that add partial sums, which all operators share.
class Combines {
 public:
  static Combines& get() {
    static Combines& combines = *new Combines;
    return combines;
  }
  void take(const LibraryData& data) {
    on_gpu_ = data.combines_on_gpu;
    for (const CpuCombineData& each : data.combines_on_cpu) {
      if (void* function = reinterpret_cast<void*>(here(each.at))) add(kCpu, 0, each.dtype, 1, function);
    }
  }
  void load_on(int index) {
    loading_.run(index, [&] {
      for (const GpuCombineData& each : on_gpu_) {
        void* handle = Gpus::get().load(each.kernel.images, each.kernel.entry, index);
        if (handle != nullptr) add(kGpu, index, each.dtype, each.jobs, handle);
      }
    });
  }

 private:
  static void add(int device, int index, int dtype, int jobs, void* function) {
    const uint8_t key[] = {static_cast<uint8_t>(device), static_cast<uint8_t>(index), static_cast<uint8_t>(dtype),
                           static_cast<uint8_t>(jobs)};
    Devices::get().combines.add(key, sizeof key, Loaded{function, {}});
  }

  Span<GpuCombineData> on_gpu_;
  OnceOnEachGpu loading_;
};

// A program and its kernels on one device.
struct Shipped : Prepared {
  explicit Shipped(const ProgramData& data) : on_gpu_(data.on_gpu) {
    read_prepared({data.numbers.items, data.numbers.count}, *this);
    for (const CpuKernelData& each : data.on_cpu) {
      void* function = reinterpret_cast<void*>(here(each.at));
      if (function != nullptr) kernels.add(each.layout.items, each.layout.count, Loaded{function, {}});
    }
  }

  void load_on(int index) {
    loading_.run(index, [&] {
      for (const GpuKernelData& each : on_gpu_) {
        void* handle = Gpus::get().load(each.images, each.entry, index);
        if (handle == nullptr) continue;
        std::vector<uint8_t> layout(each.layout.begin(), each.layout.end());
        layout.at(offsetof(LayoutClass, index)) = static_cast<uint8_t>(index);
        const Tiles tiles{each.tiles[0], each.tiles[1], each.tiles[2], each.tiles[3]};
        kernels.add(layout.data(), layout.size(), Loaded{handle, tiles});
      }
    });
  }

 private:
  Span<GpuKernelData> on_gpu_;
  OnceOnEachGpu loading_;
};

class Operator {
 public:
  const std::string name;
  const std::string schema;

  Operator(const char* package, const OperatorData& data)
      : name(data.name),
        schema(data.schema),
        package_(package),
        types_(data.types),
        statics_(data.statics),
        results_(data.results),
        depends_on_default_dtype_(data.depends_on_default_dtype) {
    std::istringstream words(data.names);
    for (std::string word; words >> word;) {
      names_.push_back(word);
      mutated_.push_back(schema.find("(" + word + "!)") != std::string::npos);  // "Tensor(x!) x" is written in place
    }
    for (const ProgramData& each : data.programs) {
      Key key;
      add_to_key(key, Row(each.key.items, each.key.count));
      Shipped& program = programs_.emplace_back(each);
      if (key.fits && program.program.fits()) by_arguments_[each.device].add(key.bytes, key.size, &program);
      has_kernels_[each.device] = true;
    }
    for (const NativeData& each : data.natives) {
      natives_[each.device] = &each;
      has_kernels_[each.device] = true;
    }
  }

  bool has_kernels(int device) const { return has_kernels_[device]; }

  // --- calls -----------------------------------------------------------------------------------------------------

  void run(StableIValue* stack, int device) {
    std::vector<Value> values;
    values.reserve(types_.size());
    for (size_t position = 0; position < types_.size(); ++position) {
      values.push_back(take(types_[position], stack[position]));
    }
    for (size_t position = 0; position < values.size(); ++position) {
      if (mutated_[position]) {
        for_each_tensor(values[position], [&](const Tensor* tensor) {
          if (tensor != nullptr) announce_change(*tensor, names_[position]);
        });
      }
    }
    const int index = index_of(values, device);
    std::optional<torch::stable::accelerator::DeviceGuard> guard;
    if (device == kGpu && index >= 0) guard.emplace(index);
    if (index >= 0 && (run_generated(values, stack, device, index) || run_native(values, stack, device))) return;
    if (announced_.load(std::memory_order_acquire)) {
      run_announced(values, stack);
    } else {
      refuse(values);
    }
  }

  // From now on the operator NAMESPACE::_NAME_reference serves the calls that no kernel here can run.
  void announce() { announced_.store(true, std::memory_order_release); }

  // Its kernels' registrations, which end when a package takes over the operator.
  std::vector<TorchLibraryHandle> registrations;
  void end_registrations() {
    for (TorchLibraryHandle each : registrations) aoti_torch_delete_library_object(each);
    registrations.clear();
  }

 private:
  // The codes are those of shipping/library/keys.py.
  static void add_to_key(Key& key, Row row) {
    row.repeat([&] {
      switch (row.small()) {
        case 0: key.add_dtype(row.small()); break;
        case 1: {
          const int dtype = row.small();
          const int64_t dimensions = row.one();
          key.add_tensor(dtype, dimensions, row.flag());
          break;
        }
        case 2: key.add_absent(); break;
        case 3: key.add_count(static_cast<size_t>(row.one())); break;
        case 4: key.add_none(); break;
        case 5: key.add_bool(row.flag()); break;
        case 6: key.add_int(row.one()); break;
        case 7: {
          const int64_t bits = row.one();
          double number;
          std::memcpy(&number, &bits, sizeof number);
          key.add_double(number);
          break;
        }
        case 8: {
          std::string text;
          row.repeat([&] { text.push_back(static_cast<char>(row.small())); });
          key.add_string(text.data(), text.size());
          break;
        }
        case 9: key.add_list(static_cast<size_t>(row.one())); break;
        default: fail("a key of an opsmith library has an unknown part");
      }
    });
  }

  // The device of all tensors, or -1 if they are on several.
  static int index_of(const std::vector<Value>& values, int device) {
    int index = device == kCpu ? 0 : -1;
    bool same = true;
    for (const Value& value : values) {
      for_each_tensor(value, [&](const Tensor* tensor) {
        if (tensor == nullptr) return;
        if (device == kCpu) {
          same &= tensor->is_cpu();
        } else if (!tensor->is_cuda() || (index >= 0 && index != tensor->get_device_index())) {
          same = false;
        } else {
          index = tensor->get_device_index();
        }
      });
    }
    return same ? index : -1;
  }

  static int default_dtype() {
    const int64_t none = 0;
    AtenTensorHandle made = nullptr;
    StableIValue stack[] = {torch::stable::detail::from(std::vector<int64_t>{none}), 0, 0, 0, 0, 0};
    check(torch_call_dispatcher("aten::empty", "memory_format", stack, TORCH_ABI_VERSION), "aten::empty");
    made = torch::stable::detail::to<AtenTensorHandle>(stack[0]);
    return Dtypes::get().known(running_dtype(Tensor(made)));
  }

  bool run_generated(std::vector<Value>& values, StableIValue* stack, int device, int index) {
    if (programs_.empty()) return false;
    Gathered given;
    const int default_type = depends_on_default_dtype_ ? default_dtype() : static_cast<int>(Dtype::Float);
    if (!given.gather(values, statics_, default_type, device, index)) return false;
    Shipped* const* found = by_arguments_[device].find(given.key.bytes, given.key.size);
    if (found == nullptr) return false;
    if (device == kGpu) {
      Gpus::get().meet(index);
      Combines::get().load_on(index);
      (*found)->load_on(index);
    }
    const std::optional<Target> target = Devices::get().target(device, index);
    const StableCall call(given, values, device, index);
    GeneratedCall<StableCall> generated(**found, call, *target);
    if (!generated.run()) return false;
    if ((*found)->outs.empty()) give_results(generated.results(), stack);
    return true;
  }

  void give_results(const std::vector<Tensor>& results, StableIValue* stack) const {
    if (results_ == "l") {
      stack[0] = torch::stable::detail::from(results);
      return;
    }
    for (size_t i = 0; i < results.size(); ++i) stack[i] = torch::stable::detail::from(results[i]);
  }

  bool run_native(const std::vector<Value>& values, StableIValue* stack, int device) {
    if (natives_[device] == nullptr) return false;
    const NativeData& native = *natives_[device];
    const Boxed function = here(native.at);
    std::vector<Value> taken;
    for (int position : native.positions) taken.push_back(values[position]);
    if (native.contiguous) {
      for (size_t i = 0; i < taken.size(); ++i) {
        bool strided = false;
        for_each_tensor(taken[i], [&](const Tensor* tensor) {
          strided |= tensor != nullptr && !tensor->is_contiguous();
        });
        if (!strided) continue;
        if (native.keeps_layout || mutated_[native.positions.items[i]]) return false;
        make_contiguous(taken[i]);
      }
    }
    std::vector<StableIValue> own(std::max(taken.size(), results_.size()), 0);
    for (size_t i = 0; i < taken.size(); ++i) own[i] = give(taken[i]);
    taken.clear();
    function(own.data(), native.positions.count, results_.size());
    if (HostCode::has_declined()) return false;
    std::copy(own.begin(), own.begin() + static_cast<int64_t>(results_.size()), stack);
    return true;
  }

  // Tells autograd that a tensor is about to change: an in-place operation on no elements increments its version. An
  // error if a gradient would have to be recorded, which a library cannot do: the gradient would be wrong.
  static void announce_change(const Tensor& tensor, const std::string& name) {
    if (aoti_torch_grad_mode_is_enabled()) {
      StableIValue leaf[] = {torch::stable::detail::from(tensor)};
      check(torch_call_dispatcher("aten::is_leaf", "", leaf, TORCH_ABI_VERSION), "aten::is_leaf");
      if (!torch::stable::detail::to<bool>(leaf[0])) refuse_gradient(name);
    }
    StableIValue view[] = {torch::stable::detail::from(tensor), torch::stable::detail::from(std::vector<int64_t>{0}),
                           torch::stable::detail::from(std::vector<int64_t>{1}),
                           torch::stable::detail::from(std::optional<int64_t>())};
    check(torch_call_dispatcher("aten::as_strided", "", view, TORCH_ABI_VERSION), "aten::as_strided");
    const Tensor nothing = torch::stable::detail::to<Tensor>(view[0]);
    // torch refuses it for a leaf that requires a gradient, as it refuses every change in place of one.
    if (aoti_torch_zero_(nothing.get()) != AOTI_TORCH_SUCCESS) refuse_gradient(name);
  }
  [[noreturn]] static void refuse_gradient(const std::string& name) {
    fail(name, " requires a gradient, and a library cannot record one of a change in place. Call it under "
         "torch.no_grad(), or import the Python package");
  }

  static Tensor contiguous(const Tensor& tensor) {
    return tensor.is_contiguous() ? tensor : torch::stable::contiguous(tensor);
  }
  static void make_contiguous(Value& value) {
    if (auto* tensor = std::get_if<Tensor>(&value)) *tensor = contiguous(*tensor);
    if (auto* tensor = std::get_if<std::optional<Tensor>>(&value)) *tensor = contiguous(**tensor);
    if (auto* list = std::get_if<std::vector<Tensor>>(&value)) {
      for (Tensor& tensor : *list) tensor = contiguous(tensor);
    }
    if (auto* list = std::get_if<std::vector<std::optional<Tensor>>>(&value)) {
      for (std::optional<Tensor>& tensor : *list) {
        if (tensor.has_value()) tensor = contiguous(*tensor);
      }
    }
  }

  void run_announced(const std::vector<Value>& values, StableIValue* stack) const {
    const size_t colons = name.find("::");
    const std::string reference = name.substr(0, colons + 2) + "_" + name.substr(colons + 2) + "_reference";
    std::vector<StableIValue> own(std::max(values.size(), results_.size()), 0);
    for (size_t i = 0; i < values.size(); ++i) own[i] = give(values[i]);
    check(torch_call_dispatcher(reference.c_str(), "", own.data(), TORCH_ABI_VERSION), reference.c_str());
    std::copy(own.begin(), own.begin() + static_cast<int64_t>(results_.size()), stack);
  }

  [[noreturn]] void refuse(const std::vector<Value>& values) const {
    std::ostringstream given;
    for (size_t position = 0; position < values.size(); ++position) {
      for_each_tensor(values[position], [&](const Tensor* tensor) {
        given << (given.tellp() == 0 ? "" : ", ") << names_[position] << " is "
              << (tensor == nullptr ? "not given" : described(*tensor));
      });
    }
    fail("the library of ", package_, " has no kernel for this call: ", given.str(),
         ". It has kernels for the kinds of calls that the op's samples and prebuild= make, built by `opsmith build "
         "--library`. Add this one to them, or import the Python package ", package_, ", whose reference serves any call");
  }

  const std::string package_;
  const std::string types_;
  const std::string statics_;
  const std::string results_;
  std::vector<std::string> names_;
  std::vector<bool> mutated_;
  const bool depends_on_default_dtype_;
  std::deque<Shipped> programs_;
  Table<Shipped*> by_arguments_[2];
  const NativeData* natives_[2] = {nullptr, nullptr};
  bool has_kernels_[2] = {false, false};
  std::atomic<bool> announced_{false};
};

}  // namespace opsmith::shipped
