// The kernel of HotrowServingLookup. `Place` is where the pooled outputs are, as in tf/layer_ops.h,
// and also has
//
//   int gpu() const;  // CUDA's number of the GPU with the outputs; -1: they are in RAM
//   // Copies tensors of RAM to the outputs 0, 1, ... on the GPU and calls `done`.
//   void copy(const std::vector<tensorflow::Tensor>&, std::function<void(const absl::Status&)>);
//
// Keys, splits, weights and counts are in RAM, whatever the place: the GPU gets them in one copy.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf/op_features.h"

namespace hotrow_tf {

// Runs work in a thread for lookups that wait for a store on the network; there are as many as
// wait.
void in_waiting_thread(std::function<void()> work);

// Until when the lookups of a run may read rows, for hr_read_budget. context: a
// tensorflow::OpKernelContext.
int64_t read_until(void* context, int64_t timeout_millis);

// A lookup that must wait for a store does so outside of TensorFlow's threads, of which there are
// few: other runs need them.
template <typename Place>
class ServingLookupOp : public tensorflow::AsyncOpKernel {
 public:
  explicit ServingLookupOp(tensorflow::OpKernelConstruction* ctx) : AsyncOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, Layout::read(ctx, &layout_));
  }

  void ComputeAsync(tensorflow::OpKernelContext* ctx, DoneCallback done) override {
    auto lookup = std::make_unique<Lookup>(ctx);
    hr_lookup_rest* rest = nullptr;
    const absl::Status status = begin(ctx, lookup.get(), &rest);
    if (rest == nullptr) {
      end(ctx, std::move(lookup), status, std::move(done));
      return;
    }
    in_waiting_thread([ctx, done = std::move(done), rest, raw = lookup.release()]() mutable {
      std::unique_ptr<Lookup> lookup(raw);
      absl::Status finished;
      {
        const Threads threads(ctx);
        finished = to_status(hr_serving_finish_lookup(rest, threads.executor()));
      }
      end(ctx, std::move(lookup), finished, std::move(done));
    });
  }

 private:
  // The numbers of an op's tables among a version's tables.
  struct Resolved {
    uint64_t tables;  // hr_serving_id
    std::vector<size_t> numbers;
  };
  // A lookup while it runs.
  struct Lookup {
    explicit Lookup(tensorflow::OpKernelContext* ctx) : place(ctx) {}
    Place place;
    std::unique_ptr<hr_serving, void (*)(hr_serving*)> tables{nullptr, hr_serving_release};
    // Outputs in RAM, of tables whose rows are not on the GPU of the outputs; empty: none.
    std::vector<tensorflow::Tensor> in_ram;
  };

  static void end(tensorflow::OpKernelContext* ctx, std::unique_ptr<Lookup> lookup,
                  const absl::Status& status, DoneCallback done) {
    if (!status.ok() || lookup->in_ram.empty()) {
      lookup.reset();
      ctx->SetStatus(status);
      done();
      return;
    }
    Lookup* const raw = lookup.release();
    raw->place.copy(raw->in_ram, [ctx, raw, done = std::move(done)](const absl::Status& copied) {
      delete raw;
      ctx->SetStatus(copied);
      done();
    });
  }

  absl::Status begin(tensorflow::OpKernelContext* ctx, Lookup* lookup, hr_lookup_rest** rest) {
    const tensorflow::Tensor& manifest = ctx->input(0);
    if (!tensorflow::TensorShapeUtils::IsScalar(manifest.shape())) {
      return absl::InvalidArgumentError("manifest must be a scalar");
    }
    std::vector<hr_feature> features;
    TF_RETURN_IF_ERROR(read_features(ctx, layout_, &features));

    const tensorflow::SessionMetadata* session = ctx->session_metadata();
    const std::string path(manifest.scalar<tensorflow::tstring>()());
    hr_serving* raw = nullptr;
    TF_RETURN_IF_ERROR(to_status(
        hr_serving_open(session == nullptr ? nullptr : session->name().c_str(),
                        session == nullptr ? 0 : session->version(), path.c_str(), &raw)));
    lookup->tables.reset(raw);
    std::shared_ptr<const Resolved> resolved;
    TF_RETURN_IF_ERROR(resolve(raw, &resolved));

    const bool with_gpu = lookup->place.gpu() >= 0 && hr_serving_gpu(raw) == lookup->place.gpu();
    const bool through_ram = lookup->place.gpu() >= 0 && !with_gpu;
    std::vector<float*> pooled(features.size());
    for (size_t f = 0; f < features.size(); ++f) {
      const tensorflow::TensorShape shape = pooled_shape(layout_, features, f);
      tensorflow::Tensor* out = nullptr;
      TF_RETURN_IF_ERROR(ctx->allocate_output(static_cast<int>(f), shape, &out));
      if (through_ram) {
        tensorflow::AllocatorAttributes in_ram;
        in_ram.set_on_host(true);
        in_ram.set_gpu_compatible(true);
        lookup->in_ram.emplace_back();
        TF_RETURN_IF_ERROR(
            ctx->allocate_temp(tensorflow::DT_FLOAT, shape, &lookup->in_ram.back(), in_ram));
        out = &lookup->in_ram.back();
      }
      pooled[f] = out->flat<float>().data();
      features[f].table = resolved->numbers[features[f].table];
    }
    tensorflow::Tensor *defaulted = nullptr, *stale = nullptr;
    // A pooled feature has an output for each sample.
    size_t counted = 0;
    while (counted + 1 < features.size() && features[counted].combiner == 0) ++counted;
    const int64_t samples = pooled_shape(layout_, features, counted).dim_size(0);
    const int first = static_cast<int>(features.size());
    const tensorflow::TensorShape counts_shape({samples});
    TF_RETURN_IF_ERROR(ctx->allocate_output(first, counts_shape, &defaulted));
    TF_RETURN_IF_ERROR(ctx->allocate_output(first + 1, counts_shape, &stale));
    const hr_sample_counts counts{defaulted->flat<int32_t>().data(), stale->flat<int32_t>().data(),
                                  static_cast<size_t>(samples)};
    const Threads threads(ctx);
    const hr_read_budget budget{read_until, ctx};
    return to_status(hr_serving_lookup(raw, features.data(), features.size(), pooled.data(),
                                       threads.executor(), &counts, &budget,
                                       with_gpu ? lookup->place.stream() : nullptr, rest));
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

}  // namespace hotrow_tf
