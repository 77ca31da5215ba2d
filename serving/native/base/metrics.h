// The process's metrics for Prometheus: counters and histograms by the values of their labels.
//
// A family is a static object of the file that counts; rpc Stats reports all families:
//
//     Counters requests(":tensorflow:serving:request_count", {"model_name", "status"});
//     Histograms latency("hotrow_latency", {"model_name"}, exponential_buckets(10, 1.8, 33));
//     requests.at({model, "OK"}).add();
//     latency.at({model}).add(micros);
#pragma once

#include <atomic>
#include <initializer_list>
#include <map>
#include <memory>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hotrow/protos/control.pb.h"

namespace hotrow_server {

class Counter {
 public:
  void add(int64_t more = 1) { value_.fetch_add(more, std::memory_order_relaxed); }
  void write(hotrow::StatsReply::Cell* cell) const;

 private:
  std::atomic<int64_t> value_{0};
};

class Histogram {
 public:
  explicit Histogram(const std::vector<double>& bounds)
      : bounds_(&bounds), counts_(bounds.size() + 1) {}
  void add(double value);
  void write(hotrow::StatsReply::Cell* cell) const;

 private:
  const std::vector<double>* bounds_;         // upper bounds, of the family
  std::vector<std::atomic<int64_t>> counts_;  // [bounds + 1]
  std::atomic<double> sum_{0};
};

// scale * growth^i for i < count, as TensorFlow's Buckets::Exponential; one more bucket has no
// bound.
std::vector<double> exponential_buckets(double scale, double growth, int count);

// Buckets of latencies in microseconds: 10 * 1.8^i, as TF Serving's.
std::vector<double> latency_buckets();

// The base of all families.
class Family {
 public:
  using Labels = std::initializer_list<std::string_view>;

  Family(std::string name, std::vector<std::string> label_names);
  virtual ~Family() = default;
  Family(const Family&) = delete;
  virtual void write(hotrow::StatsReply::Family* family) const;

 private:
  std::string name_;
  std::vector<std::string> label_names_;
};

// Cells by the values of the labels, in the order of their names. The first access creates a cell,
// which never moves, so callers may keep references. Some labels come from clients: beyond
// kMostCells, further values share one cell, whose labels are all "other", as do values longer than
// kMostLabelBytes.
template <typename Cell>
class Cells {
 public:
  template <typename... Arguments>
  Cell& at(Family::Labels values, const Arguments&... arguments);
  void write(hotrow::StatsReply::Family* family) const;

 private:
  static constexpr size_t kMostCells = 4096, kMostLabelBytes = 256;

  // Compares without creating strings.
  struct Less {
    using is_transparent = void;
    template <typename Left, typename Right>
    bool operator()(const Left& left, const Right& right) const;
  };
  using ByLabels = std::map<std::vector<std::string>, std::unique_ptr<Cell>, Less>;

  mutable std::shared_mutex mutex_;
  ByLabels cells_;
};

class Counters final : public Family {
 public:
  using Family::Family;
  Counter& at(Labels values) { return cells_.at(values); }
  void write(hotrow::StatsReply::Family* family) const override;

 private:
  Cells<Counter> cells_;
};

class Histograms final : public Family {
 public:
  Histograms(std::string name, std::vector<std::string> label_names, std::vector<double> bounds)
      : Family(std::move(name), std::move(label_names)), bounds_(std::move(bounds)) {}
  Histogram& at(Labels values) { return cells_.at(values, bounds_); }
  void write(hotrow::StatsReply::Family* family) const override;

 private:
  const std::vector<double> bounds_;
  Cells<Histogram> cells_;
};

// Writes all families of the process.
void write_stats(hotrow::StatsReply* reply);

}  // namespace hotrow_server
