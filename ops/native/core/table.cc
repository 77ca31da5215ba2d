#include "core/table.h"

#include <algorithm>
#include <cstring>

#include "core/digest.h"
#include "core/status.h"

namespace hotrow {

Table::Table(const TableOptions& options)
    : options_(options),
      line_width_(options.width + options.optimizer.state_width(options.width)),
      lines_(line_width_) {}

size_t Table::bytes() const {
  return index_.bytes() + lines_.bytes() + keys_.capacity() * sizeof(int64_t) +
         clocks_.capacity() * sizeof(uint32_t);
}

size_t Table::find(const int64_t* keys, size_t count, float* weights) const {
  const size_t width = options_.width;
  size_t unknown = 0;
  for (size_t i = 0; i < count; ++i) {
    const int64_t row = index_.find(keys[i]);
    if (row == KeyIndex::kAbsent) {
      std::fill_n(weights + i * width, width, options_.default_value);
      ++unknown;
    } else {
      std::memcpy(weights + i * width, lines_.at(static_cast<size_t>(row)), width * sizeof(float));
    }
  }
  return unknown;
}

size_t Table::insert(int64_t key) {
  bool inserted = false;
  const size_t row = static_cast<size_t>(index_.find_or_insert(key, &inserted));
  if (inserted) {
    lines_.reserve(row + 1);
    float* line = lines_.at(row);
    initialize_row(options_.init, key, options_.width, line);
    options_.optimizer.initialize_state(options_.width, line + options_.width);
    keys_.push_back(key);
    clocks_.push_back(0);
  }
  return row;
}

void Table::find_or_insert(const int64_t* keys, size_t count, float* weights) {
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(weights + i * options_.width, lines_.at(insert(keys[i])),
                options_.width * sizeof(float));
  }
}

void Table::update(const int64_t* keys, size_t count, const float* gradients, float scale,
                   uint32_t clock) {
  for (size_t i = 0; i < count; ++i) {
    const size_t row = insert(keys[i]);
    options_.optimizer.update(options_.width, gradients + i * options_.width, scale,
                              lines_.at(row));
    clocks_[row] = clock;
  }
}

void Table::export_rows(size_t first, size_t count, int64_t* keys, float* lines,
                        uint32_t* clocks) const {
  if (first > size() || count > size() - first) {
    fail(Code::kOutOfRange, "%zu rows from row %zu of a table of %zu rows", count, first, size());
  }
  for (size_t i = 0; i < count; ++i) {
    if (keys != nullptr) keys[i] = keys_[first + i];
    if (clocks != nullptr) clocks[i] = clocks_[first + i];
    if (lines != nullptr) {
      std::memcpy(lines + i * line_width_, lines_.at(first + i), line_width_ * sizeof(float));
    }
  }
}

void Table::import_rows(const int64_t* keys, size_t count, const float* lines,
                        const uint32_t* clocks) {
  index_.reserve(size() + count);
  for (size_t i = 0; i < count; ++i) {
    const size_t row = insert(keys[i]);
    std::memcpy(lines_.at(row), lines + i * line_width_, line_width_ * sizeof(float));
    clocks_[row] = clocks[i];
  }
}

void Table::add_digest(bool weights_only, uint64_t digest[2]) const {
  const size_t width = weights_only ? options_.width : line_width_;
  for (size_t row = 0; row < size(); ++row)
    add_row_digest(keys_[row], lines_.at(row), width, digest);
}

void Table::clear() {
  index_.clear();
  lines_.clear();
  keys_.clear();
  clocks_.clear();
}

}  // namespace hotrow
