// The planner's C interface, which planner/__init__.py calls: the Python fallback's plans. The C++ runtime includes
// plan.h itself.

#include <cstddef>
#include <memory>

#include "plan.h"

#define OPSMITH_EXPORT_C extern "C" __attribute__((visibility("default")))

using namespace opsmith;

namespace {

// A plan and the memory that it refers to.
struct OwnedPlan {
  std::vector<int64_t> numbers;
  std::vector<Strided> tensors;
  Plan plan;

  OwnedPlan(const Program& program, const Target& target, const int64_t* row, size_t count)
      : numbers(row, row + count), plan(program, target) {}
};

// Each tensor as -1 if it is absent, else as its number of dimensions, sizes and strides.
std::vector<Strided> read_tensors(Row row, size_t count) {
  std::vector<Strided> tensors;
  for (size_t i = 0; i < count; ++i) {
    Strided tensor;
    const int dimensions = row.small();
    tensor.present = dimensions >= 0;
    if (tensor.present) {
      tensor.sizes = row.several(dimensions);
      tensor.strides = row.several(dimensions);
    }
    tensors.push_back(tensor);
  }
  return tensors;
}

}  // namespace

// Null: too many tensors or scalars for one kernel.
OPSMITH_EXPORT_C void* opsmith_program(const int64_t* numbers, size_t count) {
  Row row(numbers, count);
  auto program = std::make_unique<Program>(read_program(row));
  return program->fits() ? program.release() : nullptr;
}

OPSMITH_EXPORT_C void opsmith_free_program(void* program) { delete static_cast<Program*>(program); }

// Null: the tensors have no common shape, or more dimensions than the planner takes.
OPSMITH_EXPORT_C void* opsmith_plan(
    const void* program, const Target* target, const int64_t* numbers, size_t count, size_t tensors) {
  auto owned = std::make_unique<OwnedPlan>(*static_cast<const Program*>(program), *target, numbers, count);
  owned->tensors = read_tensors(Row(owned->numbers.data(), count), tensors);
  for (const Strided& tensor : owned->tensors) {
    if (tensor.present && tensor.sizes.count > kMaxDimensions) return nullptr;
  }
  if (tensors > kMaxSlots || !owned->plan.find_shape(owned->tensors.data(), static_cast<int>(tensors))) return nullptr;
  return owned.release();
}

OPSMITH_EXPORT_C void opsmith_free_plan(void* plan) { delete static_cast<OwnedPlan*>(plan); }

OPSMITH_EXPORT_C int64_t opsmith_plan_count(void* plan) { return static_cast<OwnedPlan*>(plan)->plan.count(); }

// Writes the sizes of a result, then its strides; returns how many dimensions it has.
OPSMITH_EXPORT_C int64_t opsmith_plan_result(void* plan, int64_t result, int64_t* written) {
  const Plan& found = static_cast<OwnedPlan*>(plan)->plan;
  const Dimensions sizes = found.result_sizes(static_cast<int>(result));
  const Dimensions strides = found.result_strides(static_cast<int>(result));
  for (int d = 0; d < sizes.count; ++d) {
    written[d] = sizes.at[d];
    written[sizes.count + d] = strides.at[d];
  }
  return sizes.count;
}

// `numbers`: the results, as the tensors of opsmith_plan; `addresses`: of the inputs that are read, then of the results.
// False: one kernel cannot compute the call.
OPSMITH_EXPORT_C bool opsmith_plan_bind(
    void* plan, const int64_t* numbers, size_t count, size_t results, const int64_t* addresses, const int64_t* scalars) {
  const std::vector<Strided> given = read_tensors(Row(numbers, count), results);
  return static_cast<OwnedPlan*>(plan)->plan.bind(given.data(), addresses, scalars);
}

OPSMITH_EXPORT_C bool opsmith_plan_refused(void* plan) { return static_cast<OwnedPlan*>(plan)->plan.refused(); }

OPSMITH_EXPORT_C const Pass* opsmith_plan_next(void* plan) { return static_cast<OwnedPlan*>(plan)->plan.next(); }

OPSMITH_EXPORT_C void opsmith_plan_place(void* plan, int64_t scratch) {
  static_cast<OwnedPlan*>(plan)->plan.place(scratch);
}

OPSMITH_EXPORT_C int64_t opsmith_plan_stream_blocks(void* plan, const int64_t* tiles) {
  return static_cast<OwnedPlan*>(plan)->plan.blocks_of_stream({tiles[0], tiles[1], tiles[2], tiles[3]});
}
