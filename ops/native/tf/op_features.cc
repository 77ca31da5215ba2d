#include "tf/op_features.h"

#include "absl/status/status.h"
#include "tensorflow/core/lib/core/threadpool.h"

namespace hotrow_tf {
namespace tf = tensorflow;

absl::Status to_status(int code) {
  return code == 0 ? absl::OkStatus() : to_status(code, hr_last_error());
}

absl::Status to_status(int code, const std::string& message) {
  if (code == 0) return absl::OkStatus();
  auto status = static_cast<absl::StatusCode>(code);
  // Keras and tf.data take OutOfRange for the end of the data and stop without an error.
  if (status == absl::StatusCode::kOutOfRange) status = absl::StatusCode::kInvalidArgument;
  return absl::Status(status, message);
}

absl::Status Layout::read(tf::OpKernelConstruction* ctx, Layout* layout) {
  TF_RETURN_IF_ERROR(ctx->GetAttr("tables", &layout->tables));
  TF_RETURN_IF_ERROR(ctx->GetAttr("features", &layout->features));
  TF_RETURN_IF_ERROR(ctx->GetAttr("table_of", &layout->table_of));
  TF_RETURN_IF_ERROR(ctx->GetAttr("combiners", &layout->combiners));
  TF_RETURN_IF_ERROR(ctx->GetAttr("widths", &layout->widths));
  int32_t count = 0;
  TF_RETURN_IF_ERROR(ctx->GetAttr("F", &count));
  const size_t f = static_cast<size_t>(count);
  if (layout->features.size() != f || layout->table_of.size() != f ||
      layout->combiners.size() != f || layout->widths.size() != layout->tables.size()) {
    return absl::InvalidArgumentError(
        "features, table_of, combiners need F entries; widths as many as tables");
  }
  for (int32_t t : layout->table_of) {
    if (t < 0 || static_cast<size_t>(t) >= layout->tables.size()) {
      return absl::InvalidArgumentError("table_of: an index outside of tables");
    }
  }
  layout->sizes.assign(layout->widths.begin(), layout->widths.end());
  return absl::OkStatus();
}

absl::Status read_features(tf::OpKernelContext* ctx, const Layout& layout,
                           std::vector<hr_feature>* features) {
  tf::OpInputList keys, row_splits, weights;
  TF_RETURN_IF_ERROR(ctx->input_list("keys", &keys));
  TF_RETURN_IF_ERROR(ctx->input_list("row_splits", &row_splits));
  TF_RETURN_IF_ERROR(ctx->input_list("weights", &weights));
  features->resize(layout.features.size());
  for (int f = 0; f < keys.size(); ++f) {
    const std::string& name = layout.features[static_cast<size_t>(f)];
    if (keys[f].dims() != 1 || row_splits[f].dims() != 1 || weights[f].dims() != 1) {
      return absl::InvalidArgumentError("feature " + name +
                                        ": keys, row_splits and weights must be vectors");
    }
    hr_feature& out = (*features)[static_cast<size_t>(f)];
    out.name = name.c_str();
    out.table = static_cast<size_t>(layout.table_of[static_cast<size_t>(f)]);
    out.keys = keys[f].vec<int64_t>().data();
    out.key_count = static_cast<size_t>(keys[f].NumElements());
    out.combiner = layout.combiners[static_cast<size_t>(f)];
    out.weights = nullptr;
    if (weights[f].NumElements() != 0) {
      if (weights[f].NumElements() != keys[f].NumElements()) {
        return absl::InvalidArgumentError(
            "feature " + name + ": " + std::to_string(weights[f].NumElements()) + " weights for " +
            std::to_string(keys[f].NumElements()) + " keys");
      }
      out.weights = weights[f].vec<float>().data();
    }
    if (row_splits[f].NumElements() == 0) {
      out.row_splits = nullptr;
      out.samples = out.key_count;
    } else {
      out.row_splits = row_splits[f].vec<int64_t>().data();
      out.samples = static_cast<size_t>(row_splits[f].NumElements()) - 1;
    }
  }
  return absl::OkStatus();
}

tf::TensorShape pooled_shape(const Layout& layout, const std::vector<hr_feature>& features,
                             size_t f) {
  const hr_feature& feature = features[f];
  const size_t samples = feature.combiner == 0 ? feature.key_count : feature.samples;
  return tf::TensorShape(
      {static_cast<int64_t>(samples), layout.widths[static_cast<size_t>(layout.table_of[f])]});
}

absl::Status set_pooled_shapes(tf::shape_inference::InferenceContext* c) {
  std::vector<int32_t> table_of, widths;
  TF_RETURN_IF_ERROR(c->GetAttr("table_of", &table_of));
  TF_RETURN_IF_ERROR(c->GetAttr("widths", &widths));
  for (size_t f = 0; f < table_of.size(); ++f) {
    const size_t table = static_cast<size_t>(table_of[f]);
    c->set_output(static_cast<int>(f), c->Matrix(c->UnknownDim(), widths.at(table)));
  }
  return absl::OkStatus();
}

Threads::Threads(tf::OpKernelContext* ctx) {
  auto* workers = ctx->device()->tensorflow_cpu_worker_threads();
  executor_.context = workers->workers;
  // The caller's thread works, too; TensorFlow's number includes it.
  executor_.threads = static_cast<size_t>(workers->num_threads);
  executor_.run = [](void* context, size_t tasks, void (*task)(void*, size_t), void* argument) {
    const auto each = tsl::thread::ThreadPool::SchedulingParams::Fixed(/*block_size=*/1);
    static_cast<tsl::thread::ThreadPool*>(context)->ParallelFor(
        static_cast<int64_t>(tasks), each, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) task(argument, static_cast<size_t>(i));
        });
  };
}

}  // namespace hotrow_tf
