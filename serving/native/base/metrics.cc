#include "base/metrics.h"

#include <unistd.h>

#include <algorithm>
#include <mutex>

namespace hotrow_server {
namespace {

// Families register during static initialization, in unspecified order.
std::vector<const Family*>& families() {
  static std::vector<const Family*> all;
  return all;
}

}  // namespace

void Counter::write(hotrow::StatsReply::Cell* cell) const {
  cell->set_count(value_.load(std::memory_order_relaxed));
}

void Histogram::add(double value) {
  // A bucket's upper bound is exclusive, as TensorFlow's is.
  const auto bound = std::upper_bound(bounds_->begin(), bounds_->end(), value);
  counts_[bound - bounds_->begin()].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

void Histogram::write(hotrow::StatsReply::Cell* cell) const {
  int64_t all = 0;
  for (const std::atomic<int64_t>& count : counts_) {
    cell->add_buckets(count.load(std::memory_order_relaxed));
    all += *cell->buckets().rbegin();
  }
  cell->set_count(all);
  cell->set_sum(sum_.load(std::memory_order_relaxed));
}

std::vector<double> exponential_buckets(double scale, double growth, int count) {
  std::vector<double> bounds;
  for (double bound = scale; count > 0; --count, bound *= growth) bounds.push_back(bound);
  return bounds;
}

std::vector<double> latency_buckets() { return exponential_buckets(10, 1.8, 33); }

Family::Family(std::string name, std::vector<std::string> label_names)
    : name_(std::move(name)), label_names_(std::move(label_names)) {
  families().push_back(this);
}

void Family::write(hotrow::StatsReply::Family* family) const {
  family->set_name(name_);
  family->mutable_label_names()->Assign(label_names_.begin(), label_names_.end());
}

template <typename Cell>
template <typename Left, typename Right>
bool Cells<Cell>::Less::operator()(const Left& left, const Right& right) const {
  return std::lexicographical_compare(left.begin(), left.end(), right.begin(), right.end(),
                                      [](std::string_view a, std::string_view b) { return a < b; });
}

template <typename Cell>
template <typename... Arguments>
Cell& Cells<Cell>::at(Family::Labels values, const Arguments&... arguments) {
  {
    const std::shared_lock lock(mutex_);
    if (const auto found = cells_.find(values); found != cells_.end()) return *found->second;
  }
  const bool is_long = std::any_of(values.begin(), values.end(), [](std::string_view value) {
    return value.size() > kMostLabelBytes;
  });
  const std::lock_guard lock(mutex_);
  std::vector<std::string> labels(values.size(), "other");
  if (cells_.size() < kMostCells && !is_long) labels.assign(values.begin(), values.end());
  std::unique_ptr<Cell>& cell = cells_[labels];
  if (cell == nullptr) cell = std::make_unique<Cell>(arguments...);
  return *cell;
}

template <typename Cell>
void Cells<Cell>::write(hotrow::StatsReply::Family* family) const {
  const std::shared_lock lock(mutex_);
  for (const auto& [labels, cell] : cells_) {
    hotrow::StatsReply::Cell* const entry = family->add_cells();
    entry->mutable_labels()->Assign(labels.begin(), labels.end());
    cell->write(entry);
  }
}

template Counter& Cells<Counter>::at(Family::Labels);
template Histogram& Cells<Histogram>::at(Family::Labels, const std::vector<double>&);

void Counters::write(hotrow::StatsReply::Family* family) const {
  Family::write(family);
  cells_.write(family);
}

void Histograms::write(hotrow::StatsReply::Family* family) const {
  Family::write(family);
  family->mutable_bounds()->Assign(bounds_.begin(), bounds_.end());
  cells_.write(family);
}

void write_stats(hotrow::StatsReply* reply) {
  reply->set_process_id(getpid());
  for (const Family* family : families()) family->write(reply->add_families());
}

}  // namespace hotrow_server
