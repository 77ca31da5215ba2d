#include "core/ranks/prefetched_batch.h"

#include <cstring>

#include "core/kernels/feature_fingerprint.h"
#include "core/ranks/exchange.h"
#include "core/ranks/session.h"

namespace hotrow {
namespace {

template <typename T>
bool same(const std::vector<T>& own, const T* other, size_t count) {
  if (other == nullptr) return own.empty();
  // Compares bits: a weight may be NaN.
  return own.size() == count &&
         (count == 0 || std::memcmp(own.data(), other, count * sizeof(T)) == 0);
}

}  // namespace

PrefetchedBatch::PrefetchedBatch(const LayerCall& call, HeldPass pass,
                                 std::vector<std::shared_ptr<Table>> others)
    : call_(call),
      others_(std::move(others)),
      values_(call.features.size()),
      pass_(std::move(pass)) {
  call_.executor = Executor();
  for (size_t f = 0; f < call_.features.size(); ++f) {
    Feature& feature = call_.features[f];
    Segments& segments = feature.segments;
    Values& values = values_[f];
    values.keys.assign(feature.keys, feature.keys + segments.keys);
    feature.keys = values.keys.data();
    if (segments.row_splits != nullptr) {
      values.row_splits.assign(segments.row_splits, segments.row_splits + segments.samples + 1);
      segments.row_splits = values.row_splits.data();
    }
    if (segments.weights != nullptr) {
      values.weights.assign(segments.weights, segments.weights + segments.keys);
      segments.weights = values.weights.data();
    }
    feature.name = call_.tables[call_.table_of[f]]->name().c_str();  // the table lives as long
  }
  collected_ = std::async(std::launch::async, [this] {
    if (call_.tables[0]->on_gpu()) fingerprint_ = fingerprint_of(call_.features);
    RankExchange(call_, pass_.get()).collect(true);
  });
}

PrefetchedBatch::~PrefetchedBatch() {
  try {
    if (sent_) call_.tables[0]->sharding().ranks->wait(ticket_);
  } catch (const std::exception&) {  // no caller needs the batch any more
  }
  if (collected_.valid()) collected_.wait();
}

void PrefetchedBatch::send_keys() {
  if (sent_) return;
  sent_ = true;
  ticket_ = call_.tables[0]->sharding().ranks->submit(
      "prefetch of " + call_.tables[0]->name(), [this](Communicator& communicator) {
        collected_.get();
        RankExchange exchange(call_, pass_.get(), &communicator);
        exchange.send_keys(true);
        exchange.prefetch();
      });
}

HeldPass PrefetchedBatch::wait() {
  send_keys();
  sent_ = false;  // a ticket may be waited for only once
  call_.tables[0]->sharding().ranks->wait(ticket_);
  return std::move(pass_);
}

bool PrefetchedBatch::has_shape_of(const LayerCall& call) const {
  if (call.features.size() != values_.size() || call.tables != call_.tables ||
      call.table_of != call_.table_of) {
    return false;
  }
  for (size_t f = 0; f < values_.size(); ++f) {
    const Segments &own = call_.features[f].segments, &other = call.features[f].segments;
    if (own.samples != other.samples || own.keys != other.keys ||
        (own.row_splits == nullptr) != (other.row_splits == nullptr) ||
        (own.keys > 0 && (own.weights == nullptr) != (other.weights == nullptr))) {
      return false;
    }
  }
  return true;
}

void PrefetchedBatch::refuse(const LayerCall& call) const {
  fail(Code::kFailedPrecondition,
       "this is not the batch that was prefetched (here table %s and more); train "
       "batches in the order in which they were prefetched",
       call.tables[0]->name().c_str());
}

bool PrefetchedBatch::is(const LayerCall& call) const {
  if (!has_shape_of(call)) return false;
  for (size_t f = 0; f < values_.size(); ++f) {
    const Feature& other = call.features[f];
    const Segments& segments = other.segments;
    if (!same(values_[f].keys, other.keys, segments.keys) ||
        !same(values_[f].row_splits, segments.row_splits, segments.samples + 1) ||
        !same(values_[f].weights, segments.weights, segments.keys)) {
      return false;
    }
  }
  return true;
}

std::unique_ptr<PrefetchedBatch> next_prefetched(Table& first) {
  RankSession& session = session_of(first);
  std::lock_guard lock(session.mutex);
  if (session.prefetched.empty()) return nullptr;
  auto batch = std::move(session.prefetched.front());
  session.prefetched.pop_front();
  return batch;
}

void send_keys_of_next(Table& first) {
  RankSession& session = session_of(first);
  std::lock_guard lock(session.mutex);
  if (!session.prefetched.empty()) session.prefetched.front()->send_keys();
}

}  // namespace hotrow
