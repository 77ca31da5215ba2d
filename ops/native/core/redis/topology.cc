#include "core/redis/topology.h"

#include <charconv>

#include "core/base/json.h"
#include "core/base/status.h"
#include "core/store/store_layout.h"

namespace hotrow {
namespace {

constexpr char kUnix[] = "unix:";
// sockaddr_un holds this many bytes and the terminating zero.
constexpr size_t kLongestPath = 107;

}  // namespace

RedisAddress parse_redis_address(const std::string& text) {
  RedisAddress address;
  address.text = text;
  if (text.rfind(kUnix, 0) == 0) {
    address.path = text.substr(sizeof(kUnix) - 1);
    if (address.path.empty() || address.path.size() > kLongestPath) {
      fail(Code::kInvalidArgument, "Redis node %s: the path of a socket has 1 to %zu bytes",
           text.c_str(), kLongestPath);
    }
    return address;
  }
  const size_t colon = text.rfind(':');
  if (colon != std::string::npos) {
    const char *first = text.data() + colon + 1, *last = text.data() + text.size();
    const auto parsed = std::from_chars(first, last, address.port);
    if (parsed.ec != std::errc() || parsed.ptr != last) address.port = 0;
    address.host = text.substr(0, colon);
    if (address.host.size() > 2 && address.host.front() == '[' && address.host.back() == ']') {
      address.host = address.host.substr(1, address.host.size() - 2);
    }
  }
  if (address.host.empty() || address.port < 1 || address.port > 65535) {
    fail(Code::kInvalidArgument, "Redis node %s; legal are host:port and unix:/path", text.c_str());
  }
  // MOVED has IPv6 addresses without brackets: normalize, so that a node has one name.
  if (address.host.find(':') != std::string::npos) {
    address.text = "[" + address.host + "]:" + std::to_string(address.port);
  }
  return address;
}

RedisTopology parse_redis_topology(const std::string& text) {
  RedisTopology topology;
  try {
    const Json json = Json::parse(text);
    topology.cluster = json.boolean("cluster");
    for (const Json& entry : json.items("nodes")) {
      RedisTopology::Node node;
      node.address = parse_redis_address(entry.text("address"));
      if (topology.cluster) {
        for (const Json& range : entry.items("slots")) {
          const std::vector<Json> ends = range.items();
          if (ends.size() != 2) {
            fail(Code::kDataLoss, "slots %s; legal is [first, last]", range.written().c_str());
          }
          const uint64_t first = ends[0].whole(0, UINT32_MAX), last = ends[1].whole(0, UINT32_MAX);
          if (first > last || last >= kSlots) {
            fail(Code::kInvalidArgument,
                 "Redis node %s has the slots %llu to %llu; they end at %zu",
                 node.address.text.c_str(), static_cast<unsigned long long>(first),
                 static_cast<unsigned long long>(last), kSlots - 1);
          }
          node.slots.emplace_back(first, last);
        }
      }
      topology.nodes.push_back(std::move(node));
    }
    if (json.has("tls")) {
      const Json files = json.at("tls");
      topology.tls = RedisTlsFiles{files.text("ca"), files.text("cert"), files.text("key")};
      if (topology.tls->cert.empty() != topology.tls->key.empty()) {
        fail(Code::kInvalidArgument, "TLS with a certificate or its key alone; give both");
      }
    }
  } catch (const Error& error) {
    if (error.code() != Code::kDataLoss) throw;
    fail(Code::kInvalidArgument, "the topology of Redis is no JSON as it must be: %s",
         error.what());
  }
  if (topology.nodes.empty() || (!topology.cluster && topology.nodes.size() > 1)) {
    fail(Code::kInvalidArgument, "the topology of Redis has %zu nodes; %s", topology.nodes.size(),
         topology.cluster ? "a cluster has at least one" : "1 outside of a cluster");
  }
  return topology;
}

}  // namespace hotrow
