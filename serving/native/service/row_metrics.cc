#include "service/row_metrics.h"

#include <cmath>
#include <map>
#include <numeric>
#include <string_view>

#include "core/abi/c_api.h"

namespace hotrow_server {
namespace {

// The prefix of the core's counters for a store's nodes.
constexpr std::string_view kOfNodes = "store_";

struct Report {
  hotrow::StatsReply* reply;
  const Servable* servable;
  std::map<std::string, hotrow::StatsReply::Family*> families;

  hotrow::StatsReply::Family* family(const std::string& name, bool gauge) {
    hotrow::StatsReply::Family*& family = families[name];
    if (family == nullptr) {
      family = reply->add_families();
      family->set_name("hotrow_" + name + (gauge ? "" : "_total"));
      family->set_gauge(gauge);
      family->add_label_names("model_name");
      family->add_label_names("version");
      family->add_label_names(name.starts_with(kOfNodes) ? "node" : "table");
    }
    return family;
  }
};

void add(void* context, const char* name, const char* of, double value, int gauge) {
  Report& report = *static_cast<Report*>(context);
  hotrow::StatsReply::Cell* const cell = report.family(name, gauge != 0)->add_cells();
  cell->add_labels(report.servable->request().model());
  cell->add_labels(std::to_string(report.servable->request().version()));
  cell->add_labels(of);
  cell->set_count(std::llround(value));
}

void add_histogram(void* context, const char* name, const double* bounds, size_t count,
                   const uint64_t* buckets, double sum) {
  Report& report = *static_cast<Report*>(context);
  hotrow::StatsReply::Family*& family = report.families[name];
  if (family == nullptr) {
    family = report.reply->add_families();
    family->set_name(std::string("hotrow_") + name);
    family->add_label_names("model_name");
    family->add_label_names("version");
    family->mutable_bounds()->Assign(bounds, bounds + count);
  }
  hotrow::StatsReply::Cell* const cell = family->add_cells();
  cell->add_labels(report.servable->request().model());
  cell->add_labels(std::to_string(report.servable->request().version()));
  cell->mutable_buckets()->Assign(buckets, buckets + count + 1);
  cell->set_count(std::accumulate(buckets, buckets + count + 1, int64_t{0}));
  cell->set_sum(sum);
}

}  // namespace

void write_row_stats(const std::vector<std::shared_ptr<const Servable>>& servables,
                     hotrow::StatsReply* reply) {
  Report report{reply, nullptr, {}};
  for (const auto& servable : servables) {
    if (!servable->has_own_tables()) continue;
    report.servable = servable.get();
    // A servable that is being unloaded has no counts.
    hr_serving_counts(servable->request().model().c_str(), servable->request().version(), add,
                      &report);
    hr_serving_histograms(servable->request().model().c_str(), servable->request().version(),
                          add_histogram, &report);
  }
}

}  // namespace hotrow_server
