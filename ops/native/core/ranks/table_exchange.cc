#include "core/ranks/table_exchange.h"

#include "core/ranks/owned_exchange.h"
#include "core/ranks/replicated_exchange.h"
#include "core/ranks/shared_batch_exchange.h"
#include "core/ranks/stale_exchange.h"

namespace hotrow {

std::unique_ptr<TableExchange> TableExchange::make(Table& table, size_t number) {
  switch (table.sharding().scheme) {
    case Scheme::kColumn:
      return std::make_unique<ColumnExchange>(table, number);
    case Scheme::kRowBroadcast:
      return std::make_unique<PartialSumExchange>(table, number);
    case Scheme::kReplicated:
      return std::make_unique<ReplicatedExchange>(table, number);
    default:
      if (table.stale() != nullptr) return std::make_unique<StaleExchange>(table, number);
      return std::make_unique<OwnedExchange>(table, number);
  }
}

}  // namespace hotrow
