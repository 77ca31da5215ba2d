// The lookup counters of loaded versions, for Prometheus.
#pragma once

#include <memory>
#include <vector>

#include "service/servable.h"

namespace hotrow_server {

// Families `hotrow_<name>`, with `_total` for counters, by model, version, and table or node;
// histograms by model and version. Two
// loaded servables of one version are counted as one.
void write_row_stats(const std::vector<std::shared_ptr<const Servable>>& servables,
                     hotrow::StatsReply* reply);

}  // namespace hotrow_server
