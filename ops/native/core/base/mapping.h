// Anonymous memory of the process, zeroed: untouched pages cost nothing, and freeing returns pages
// to the system.
#pragma once

#include <cstddef>

namespace hotrow {

// Mappings of 2 MiB and more use huge pages where the system allows: accesses to rows are random,
// and with small pages each costs a page-table walk.
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
