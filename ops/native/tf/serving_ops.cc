// HotrowServingLookup: the lookup of an exported graph. It never creates a table.
#include <algorithm>
#include <chrono>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/session_state.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/unbounded_work_queue.h"
#include "tensorflow/core/protobuf/config.pb.h"
#include "tf/serving_op.h"

namespace hotrow_tf {
namespace tf = tensorflow;

REGISTER_OP("HotrowServingLookup")
    .Input("manifest: string")
    .Input("keys: F * int64")
    .Input("row_splits: F * int64")
    .Input("weights: F * float")
    .Output("pooled: F * float")
    .Output("defaulted: int32")
    .Output("stale: int32")
    .Attr("F: int >= 1")
    .Attr("tables: list(string)")
    .Attr("features: list(string)")
    .Attr("table_of: list(int)")
    .Attr("combiners: list(int)")
    .Attr("widths: list(int)")
    .SetIsStateful()
    // Else TensorFlow turns Unavailable into an internal error: a store may be on the network.
    .SetIsDistributedCommunication()
    .SetShapeFn([](tf::shape_inference::InferenceContext* c) {
      TF_RETURN_IF_ERROR(set_pooled_shapes(c));
      for (int from_end = 1; from_end <= 2; ++from_end) {
        c->set_output(c->num_outputs() - from_end,
                      c->Vector(tf::shape_inference::InferenceContext::kUnknownDim));
      }
      return absl::OkStatus();
    })
    .Doc(
        "Rows of all features from the tables of a version, pooled; and, for each sample of the "
        "first feature that is pooled, how many keys got default rows because the store could not "
        "be read, and how many got rows that may be old because it cannot be followed. The tables "
        "are those that a server bound to the (name, version) of the session, else those of "
        "the manifest file.");

void in_waiting_thread(std::function<void()> work) {
  // Never destroyed: lookups may wait until the process ends.
  static auto* const queue = new tf::UnboundedWorkQueue(tf::Env::Default(), "hotrow_store");
  queue->Schedule(std::move(work));
}

namespace {

// Until when all lookups of a run may read rows: the first that reads begins their budget. Kept by
// TensorFlow until the run ends.
class ReadBudget : public tf::ResourceBase {
 public:
  explicit ReadBudget(int64_t until) : until_(until) {}
  int64_t until() const { return until_; }
  std::string DebugString() const override { return "ReadBudget"; }

 private:
  const int64_t until_;
};

// The end of a budget that begins now: the store's time limit, or the end of the request. A run in
// the thread of its request has no deadline of TensorFlow's: the thread knows it.
int64_t end_of_budget(const tf::OpKernelContext& ctx, int64_t timeout_millis) {
  const int64_t now = std::chrono::duration_cast<std::chrono::nanoseconds>(
                          std::chrono::steady_clock::now().time_since_epoch())
                          .count();
  int64_t end = hr_serving_request_end();
  if (timeout_millis != 0) end = std::min(end, now + timeout_millis * 1'000'000);
  if (ctx.deadline().has_value()) {
    end = std::min(end, now + absl::ToInt64Nanoseconds(*ctx.deadline() - absl::Now()));
  }
  return end;
}

}  // namespace

int64_t read_until(void* context, int64_t timeout_millis) {
  auto* const ctx = static_cast<tf::OpKernelContext*>(context);
  tf::ScopedStepContainer* const step = ctx->step_container();
  // Eager execution has no session, and one container for all calls.
  if (step == nullptr || ctx->session_metadata() == nullptr) {
    return end_of_budget(*ctx, timeout_millis);
  }
  ReadBudget* found = nullptr;
  const absl::Status status = step->LookupOrCreate<ReadBudget>(
      ctx->resource_manager(), "hotrow_read_budget", &found, [&](ReadBudget** made) {
        *made = new ReadBudget(end_of_budget(*ctx, timeout_millis));
        return absl::OkStatus();
      });
  if (!status.ok()) return end_of_budget(*ctx, timeout_millis);
  const tf::core::ScopedUnref owned(found);
  return found->until();
}

namespace {

// Rows are in RAM, and so are the outputs.
class InRam {
 public:
  explicit InRam(tf::OpKernelContext*) {}
  const hr_stream* stream() const { return nullptr; }
  int gpu() const { return -1; }
  void copy(const std::vector<tf::Tensor>&, std::function<void(const absl::Status&)>) const {}
};

}  // namespace

REGISTER_KERNEL_BUILDER(Name("HotrowServingLookup").Device(tf::DEVICE_CPU), ServingLookupOp<InRam>);

}  // namespace hotrow_tf
