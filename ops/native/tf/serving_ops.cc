// HotrowServingLookup: the lookup of an exported graph. It never creates a table.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/session_state.h"
#include "tensorflow/core/framework/shape_inference.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/unbounded_work_queue.h"
#include "tensorflow/core/protobuf/config.pb.h"
#include "tf/op_features.h"

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

// The numbers of an op's tables among a version's tables.
struct Resolved {
  uint64_t tables;  // hr_serving_id
  std::vector<size_t> numbers;
};

using ServingTables = std::unique_ptr<hr_serving, void (*)(hr_serving*)>;

// Threads for lookups that wait for a store on the network: as many as wait.
void in_waiting_thread(std::function<void()> work) {
  // Never destroyed: lookups may wait until the process ends.
  static auto* const queue = new tf::UnboundedWorkQueue(tf::Env::Default(), "hotrow_store");
  queue->Schedule(std::move(work));
}

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

// A lookup that must wait for a store does so outside of TensorFlow's threads, of which there are
// few: other runs need them.
class ServingLookupOp : public tf::AsyncOpKernel {
 public:
  explicit ServingLookupOp(tf::OpKernelConstruction* ctx) : AsyncOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, Layout::read(ctx, &layout_));
  }

  void ComputeAsync(tf::OpKernelContext* ctx, DoneCallback done) override {
    ServingTables tables(nullptr, hr_serving_release);
    hr_lookup_rest* rest = nullptr;
    const absl::Status status = begin(ctx, &tables, &rest);
    if (rest == nullptr) {
      ctx->SetStatus(status);
      done();
      return;
    }
    in_waiting_thread([ctx, done = std::move(done), rest, raw = tables.release()] {
      {
        const ServingTables tables(raw, hr_serving_release);
        const Threads threads(ctx);
        ctx->SetStatus(to_status(hr_serving_finish_lookup(rest, threads.executor())));
      }
      done();
    });
  }

 private:
  absl::Status begin(tf::OpKernelContext* ctx, ServingTables* tables, hr_lookup_rest** rest) {
    const tf::Tensor& manifest = ctx->input(0);
    if (!tf::TensorShapeUtils::IsScalar(manifest.shape())) {
      return absl::InvalidArgumentError("manifest must be a scalar");
    }
    std::vector<hr_feature> features;
    TF_RETURN_IF_ERROR(read_features(ctx, layout_, &features));

    const tf::SessionMetadata* session = ctx->session_metadata();
    const std::string path(manifest.scalar<tf::tstring>()());
    hr_serving* raw = nullptr;
    TF_RETURN_IF_ERROR(to_status(
        hr_serving_open(session == nullptr ? nullptr : session->name().c_str(),
                        session == nullptr ? 0 : session->version(), path.c_str(), &raw)));
    tables->reset(raw);
    std::shared_ptr<const Resolved> resolved;
    TF_RETURN_IF_ERROR(resolve(raw, &resolved));

    std::vector<float*> pooled(features.size());
    for (size_t f = 0; f < features.size(); ++f) {
      tf::Tensor* out = nullptr;
      TF_RETURN_IF_ERROR(
          ctx->allocate_output(static_cast<int>(f), pooled_shape(layout_, features, f), &out));
      pooled[f] = out->flat<float>().data();
      features[f].table = resolved->numbers[features[f].table];
    }
    tf::Tensor *defaulted = nullptr, *stale = nullptr;
    // A pooled feature has an output for each sample.
    size_t counted = 0;
    while (counted + 1 < features.size() && features[counted].combiner == 0) ++counted;
    const int64_t samples = pooled_shape(layout_, features, counted).dim_size(0);
    const int first = static_cast<int>(features.size());
    const tf::TensorShape counts_shape({samples});
    TF_RETURN_IF_ERROR(ctx->allocate_output(first, counts_shape, &defaulted));
    TF_RETURN_IF_ERROR(ctx->allocate_output(first + 1, counts_shape, &stale));
    const hr_sample_counts counts{defaulted->flat<int32_t>().data(), stale->flat<int32_t>().data(),
                                  static_cast<size_t>(samples)};
    const Threads threads(ctx);
    const hr_read_budget budget{read_until, ctx};
    return to_status(hr_serving_lookup(raw, features.data(), features.size(), pooled.data(),
                                       threads.executor(), &counts, &budget, rest));
  }

  // Looks the names up when the version's tables differ from the previous call's.
  absl::Status resolve(const hr_serving* tables, std::shared_ptr<const Resolved>* resolved) {
    const uint64_t id = hr_serving_id(tables);
    *resolved = std::atomic_load(&resolved_);
    if (*resolved != nullptr && (*resolved)->tables == id) return absl::OkStatus();
    auto made = std::make_shared<Resolved>(Resolved{id, {}});
    made->numbers.resize(layout_.tables.size());
    for (size_t t = 0; t < layout_.tables.size(); ++t) {
      TF_RETURN_IF_ERROR(to_status(hr_serving_table(tables, layout_.tables[t].c_str(),
                                                    layout_.sizes[t], &made->numbers[t])));
    }
    *resolved = made;
    std::atomic_store(&resolved_, *resolved);
    return absl::OkStatus();
  }

  Layout layout_;
  std::shared_ptr<const Resolved> resolved_;
};
REGISTER_KERNEL_BUILDER(Name("HotrowServingLookup").Device(tf::DEVICE_CPU), ServingLookupOp);

}  // namespace hotrow_tf
