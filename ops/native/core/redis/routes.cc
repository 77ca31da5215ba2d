#include "core/redis/routes.h"

#include <utility>

namespace hotrow {

std::shared_ptr<RedisNode> RedisRoutes::node_locked(const RedisAddress& address) {
  std::shared_ptr<RedisNode>& node = nodes_[address.text];
  if (node == nullptr) node = std::make_shared<RedisNode>(address, tls_, options_);
  return node;
}

// The files as they are used already, or anew; null: plain text.
std::shared_ptr<RedisTls> RedisRoutes::tls_of(const RedisTopology& topology) const {
  if (!topology.tls) return nullptr;
  if (tls_ != nullptr && tls_->files() == *topology.tls) return tls_;
  return std::make_shared<RedisTls>(*topology.tls);
}

void RedisRoutes::set_topology(const RedisTopology& topology) {
  auto map = std::make_shared<RedisRouteMap>();
  map->cluster = topology.cluster;
  map->of_shard.resize(names_.shards());
  std::map<std::string, std::shared_ptr<RedisNode>> gone;
  const std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<RedisTls> tls = tls_of(topology);
  gone.swap(nodes_);
  if (tls_ != tls) gone.clear();
  tls_ = std::move(tls);
  for (const RedisTopology::Node& entry : topology.nodes) {
    const auto known = gone.find(entry.address.text);
    if (known != gone.end()) nodes_.insert(*known);
    const std::shared_ptr<RedisNode> node = node_locked(entry.address);
    for (size_t s = 0; s < names_.shards(); ++s) {
      bool has = !topology.cluster;
      for (const auto& [first, last] : entry.slots) {
        has = has || (names_.slot(s) >= first && names_.slot(s) <= last);
      }
      if (has) map->of_shard[s] = node;
    }
  }
  map_ = std::move(map);
}

std::shared_ptr<const RedisRouteMap> RedisRoutes::map() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return map_;
}

std::shared_ptr<RedisNode> RedisRoutes::node(const RedisAddress& address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return node_locked(address);
}

void RedisRoutes::move(size_t shard, const std::shared_ptr<RedisNode>& to) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (map_->of_shard[shard] == to) return;
  auto map = std::make_shared<RedisRouteMap>(*map_);
  map->of_shard[shard] = to;
  map_ = std::move(map);
}

std::vector<std::shared_ptr<RedisNode>> RedisRoutes::nodes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<RedisNode>> all;
  for (const auto& [address, node] : nodes_) all.push_back(node);
  return all;
}

}  // namespace hotrow
