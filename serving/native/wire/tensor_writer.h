// A tensor as the bytes of a TensorProto: its values in typed fields, or as tensor_content.
#pragma once

#include <cstddef>
#include <cstdint>

#include "wire/tensor.h"

namespace hotrow_server {

class TensorWriter {
 public:
  // The tensor must outlive this. as_content: numbers go into tensor_content.
  TensorWriter(const TF_Tensor* tensor, bool as_content);

  bool has_wire_form() const { return field_ != 0; }
  // How many bytes `write` writes.
  size_t bytes() const { return bytes_; }
  // Returns the end of what it wrote.
  uint8_t* write(uint8_t* to) const;

 private:
  const TF_Tensor* tensor_;
  int field_ = 0;      // of the values
  size_t values_ = 0;  // bytes of them
  size_t shape_ = 0;   // bytes of the shape
  size_t bytes_ = 0;
};

}  // namespace hotrow_server
