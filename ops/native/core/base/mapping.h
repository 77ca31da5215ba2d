// Anonymous memory of the process, zeroed: untouched pages cost nothing, freeing returns them.
#pragma once

#include <cstddef>

namespace hotrow {

// Of 2 MiB and more, in huge pages where the system gives them: rows lie all over a table, and with
// small pages each costs a walk through the page tables.
class Mapping {
 public:
  Mapping() = default;
  // At least `bytes`, none for 0. Fails with ResourceExhausted: "no memory for `bytes` bytes of
  // `what`".
  Mapping(size_t bytes, const char* what);
  Mapping(Mapping&& other) noexcept { swap(other); }
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  void swap(Mapping& other) noexcept;
  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* mapped_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::byte* data_ = nullptr;  // in what is mapped
  size_t bytes_ = 0;
};

}  // namespace hotrow
