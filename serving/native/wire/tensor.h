// Converts TensorProtos to TensorFlow's tensors and back, with the rules of Tensor::FromProto.
#pragma once

#include <tensorflow/c/tf_tensor.h>
#include <tensorflow/c/tf_tstring.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensorflow/core/framework/tensor.pb.h"

namespace hotrow_server {

struct DeleteTensor {
  void operator()(TF_Tensor* tensor) const { TF_DeleteTensor(tensor); }
};
using Tensor = std::unique_ptr<TF_Tensor, DeleteTensor>;

// TensorFlow's own bound: it ends the process when a tensor with more is made.
inline constexpr int kMostDimensions = 254;

// The field of TensorProto that has a type's values; 0: the type has no wire form.
int value_field(TF_DataType type);

// A tensor given as typed fields or as tensor_content. A short list of values repeats its last one,
// an empty one means zeros or empty strings, surplus values are ignored. Null: it is not a valid
// tensor (an unknown type, an illegal shape, content of another size).
Tensor decode(const tensorflow::TensorProto& proto);

// A tensor of a message's type and shape, its *count values not set (strings: empty). Null: an
// unknown type, an illegal shape, or a shape that is not plausible for the `sent` bytes of its
// values.
Tensor allocate(const tensorflow::TensorProto& head, size_t sent, size_t* count);

// Its values are not set (strings: empty). shape: at most kMostDimensions.
Tensor make_tensor(TF_DataType type, const std::vector<int64_t>& shape);

// A vector of strings.
Tensor strings(const std::vector<std::string>& values);
// The i-th string of a tensor of strings.
std::string string_at(const TF_Tensor* tensor, size_t i);

inline std::vector<int64_t> shape_of(const TF_Tensor* tensor) {
  std::vector<int64_t> shape(static_cast<size_t>(TF_NumDims(tensor)));
  for (size_t i = 0; i < shape.size(); ++i) shape[i] = TF_Dim(tensor, static_cast<int>(i));
  return shape;
}
// "[2,3]"
std::string shape_text(const TF_Tensor* tensor);

}  // namespace hotrow_server
