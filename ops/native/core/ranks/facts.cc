#include "core/ranks/facts.h"

#include <farmhash.h>

#include <cstdio>

#include "core/comm/rank_stage.h"

namespace hotrow {
namespace {

constexpr size_t kMessageBytes = 1024;  // of an error

// The same on ranks that make the same call.
int64_t fingerprint_of(const LayerCall& call, const std::vector<size_t>& features,
                       const char* how) {
  std::string text = how;
  for (size_t t = 0; t < call.tables.size(); ++t) {
    const Sharding& sharding = call.tables[t]->sharding();
    text += '\0' + call.tables[t]->name() + '\0' + std::to_string(features[t]) + '/' +
            std::to_string(static_cast<int>(sharding.scheme)) + '/' +
            std::to_string(sharding.owner) + '/' + std::to_string(sharding.width);
  }
  return static_cast<int64_t>(util::Fingerprint64(text));
}

}  // namespace

RankFacts::RankFacts(Collectives& ranks, size_t count)
    : ranks_(ranks),
      count_(count),
      size_(static_cast<size_t>(ranks.size())),
      sent_((kHead + count) * size_, 0),
      received_(sent_.size()) {}

void RankFacts::exchange(const Run& run, const RankFailure& failure, const LayerCall& call,
                         const std::vector<size_t>& features, const char* how) {
  RankStage stage(ranks_, "sizes");
  const int64_t fingerprint = fingerprint_of(call, features, how);
  for (size_t r = 0; r < size_; ++r) {
    to(r)[-2] = static_cast<int64_t>(failure.code);
    to(r)[-1] = fingerprint;
  }
  const std::vector<size_t> bytes(size_, (kHead + count_) * sizeof(int64_t));
  stage.count(bytes, bytes);
  run("sizes", [&](Communicator& communicator) {
    communicator.all_to_all(reinterpret_cast<const std::byte*>(sent_.data()), bytes.data(),
                            reinterpret_cast<std::byte*>(received_.data()), bytes.data());
  });
  for (size_t r = 0; r < size_; ++r) {
    if (from(r)[-1] == fingerprint) continue;
    fail(Code::kFailedPrecondition,
         "rank %zu and rank %d look up other tables, or features of them, at the same time (here "
         "%s and more); all ranks must call the layers in the same order",
         r, ranks_.rank(), call.tables[0]->name().c_str());
  }
  for (size_t r = 0; r < size_; ++r) {
    if (from(r)[-2] != 0) fail_together(run, failure);
  }
}

void RankFacts::fail_together(const Run& run, const RankFailure& failure) {
  std::vector<char> own(kMessageBytes, 0), all(kMessageBytes * size_);
  own[0] = static_cast<char>(failure.code);
  std::snprintf(own.data() + 1, kMessageBytes - 1, "%s", failure.message.c_str());
  const std::vector<size_t> bytes(size_, kMessageBytes);
  run("errors", [&](Communicator& communicator) {
    communicator.all_gather(reinterpret_cast<const std::byte*>(own.data()),
                            reinterpret_cast<std::byte*>(all.data()), bytes.data());
  });
  for (size_t r = 0; r < size_; ++r) {
    const char* message = all.data() + r * kMessageBytes;
    if (message[0] == 0) continue;
    throw AgreedError(static_cast<Code>(message[0]),
                      "rank " + std::to_string(r) + ": " + std::string(message + 1));
  }
  fail(Code::kInternal, "a rank failed and did not say why");
}

}  // namespace hotrow
