// Rows of tables as numpy arrays, and snapshots of tables.
#pragma once

#include <memory>
#include <string>

#include "core/abi/rows.h"
#include "python/binding.h"

inline nb::bytes take_bytes(hr_bytes* bytes) {
  nb::bytes result(bytes->data, bytes->size);
  hr_bytes_free(bytes);
  return result;
}

// A numpy array that owns memory of the core and frees it.
template <typename T>
nb::object take_array(const hr_bytes& bytes) {
  hr_bytes* kept = new hr_bytes(bytes);
  nb::capsule owner(kept, [](void* p) noexcept {
    hr_bytes_free(static_cast<hr_bytes*>(p));
    delete static_cast<hr_bytes*>(p);
  });
  return nb::cast(
      nb::ndarray<nb::numpy, T>(reinterpret_cast<T*>(bytes.data), {bytes.size / sizeof(T)}, owner));
}

// Memory for rows; `finish` returns the first `written` rows as numpy arrays that own the memory.
class RowsOut {
 public:
  RowsOut(size_t count, size_t line_bytes)
      : keys_(new int64_t[count]),
        lines_(new uint8_t[count * line_bytes]),
        clocks_(new uint32_t[count]),
        counts_(new uint32_t[count]),
        places_(new uint32_t[count]),
        line_bytes_(line_bytes) {}

  hr_rows arrays() const {
    return {keys_.get(), lines_.get(), clocks_.get(), counts_.get(), places_.get()};
  }

  nb::tuple finish(size_t written) {
    return nb::make_tuple(give(keys_, {written}), give(lines_, {written, line_bytes_}),
                          give(clocks_, {written}), give(counts_, {written}),
                          give(places_, {written}));
  }

 private:
  template <typename T>
  static nb::ndarray<nb::numpy, T> give(std::unique_ptr<T[]>& memory,
                                        std::initializer_list<size_t> shape) {
    T* data = memory.release();
    nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return nb::ndarray<nb::numpy, T>(data, shape, owner);
  }

  std::unique_ptr<int64_t[]> keys_;
  std::unique_ptr<uint8_t[]> lines_;
  std::unique_ptr<uint32_t[]> clocks_, counts_, places_;
  size_t line_bytes_;
};

// The most rows that one call returns, so that a wrong count allocates no memory.
constexpr size_t kMostRows = size_t{1} << 24;

inline void check_row_count(size_t count) {
  if (count == 0 || count > kMostRows) {
    throw nb::value_error(("max_rows is " + std::to_string(count) + "; must be in [1, " +
                           std::to_string(kMostRows) + "]")
                              .c_str());
  }
}

// A C-contiguous array that a call writes to.
template <typename T, int kDimensions>
using Filled = nb::ndarray<T, nb::ndim<kDimensions>, nb::c_contig, nb::device::cpu>;

class PySnapshot {
 public:
  PySnapshot(hr_snapshot* opened, const hr_table* table) : snapshot_(opened) {
    hr_layout layout;
    hr_table_layout(table, &layout);
    line_bytes_ = layout.line_bytes;
  }
  ~PySnapshot() {
    nb::gil_scoped_release release;
    hr_snapshot_free(snapshot_);
  }
  PySnapshot(const PySnapshot&) = delete;

  size_t rows() const { return hr_snapshot_rows(snapshot_); }
  size_t bytes() const { return rows() * line_bytes_; }
  uint32_t step() const { return hr_snapshot_step(snapshot_); }
  size_t nonfinite_rows() const { return hr_snapshot_nonfinite_rows(snapshot_); }
  size_t copied_bytes() const { return hr_snapshot_copied_bytes(snapshot_); }
  bool short_of_memory() const { return hr_snapshot_short_of_memory(snapshot_) != 0; }
  double waited_seconds() const { return hr_snapshot_waited_seconds(snapshot_); }

  bool lost() const { return hr_snapshot_lost(snapshot_) != 0; }

  nb::bytes state() const {
    hr_bytes bytes;
    check(hr_snapshot_state(snapshot_, &bytes));
    return take_bytes(&bytes);
  }

  nb::object removed() const {
    hr_bytes bytes;
    check(hr_snapshot_removed(snapshot_, &bytes));
    return take_array<int64_t>(bytes);
  }

  nb::tuple read(size_t max_rows) {
    check_row_count(max_rows);
    RowsOut out(max_rows, line_bytes_);
    size_t written = 0;
    const hr_rows arrays = out.arrays();
    run([&] { return hr_snapshot_read(snapshot_, max_rows, &arrays, &written); });
    return out.finish(written);
  }

  size_t read_into(const Filled<int64_t, 1>& keys, const Filled<uint8_t, 2>& lines,
                   const Filled<uint32_t, 1>& clocks, const Filled<uint32_t, 1>& counts,
                   const Filled<uint32_t, 1>& places) {
    const size_t rows = keys.shape(0);
    if (lines.shape(0) != rows || clocks.shape(0) != rows || counts.shape(0) != rows ||
        places.shape(0) != rows || lines.shape(1) != line_bytes_) {
      throw nb::value_error("read_into: the arrays are not for rows of this table");
    }
    if (rows == 0) throw nb::value_error("read_into: no room for a row");
    const hr_rows arrays{keys.data(), lines.data(), clocks.data(), counts.data(), places.data()};
    size_t written = 0;
    run([&] { return hr_snapshot_read(snapshot_, rows, &arrays, &written); });
    return written;
  }

  size_t add_unchanged(size_t max_rows) {
    size_t added = 0;
    run([&] { return hr_snapshot_add_unchanged(snapshot_, max_rows, &added); });
    return added;
  }

  nb::object digest() {
    uint64_t sums[2];
    int known = 0;
    run([&] { return hr_snapshot_digest(snapshot_, sums, &known); });
    return known ? nb::cast(hex_digest(sums)) : nb::none();
  }

  bool digests_all() const { return hr_snapshot_digests_all(snapshot_) != 0; }

  void close(bool keep) {
    run([&] { return hr_snapshot_close(snapshot_, keep); });
  }

 private:
  hr_snapshot* snapshot_ = nullptr;
  size_t line_bytes_ = 0;
};
