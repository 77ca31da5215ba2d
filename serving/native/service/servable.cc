#include "service/servable.h"

#include "base/refused.h"
#include "core/abi/c_api.h"
#include "tensorflow_serving/apis/get_model_metadata.pb.h"

namespace hotrow_server {
namespace {

void check(int code) {
  if (code != 0) throw Refused(static_cast<grpc::StatusCode>(code), hr_last_error());
}

// TensorFlow's path of the variables in a SavedModel.
constexpr char kVariables[] = "/variables/variables";

void bind_rows(const hotrow::LoadRequest& request, const std::string& name) {
  if (request.shares() != 0) {
    check(hr_serving_share(request.model().c_str(), request.version(), name.c_str()));
    return;
  }
  const hotrow::Rows& rows = request.rows();
  hr_serving_options options{};
  options.store = request.store().c_str();
  options.generation = rows.generation().c_str();
  options.topology = rows.topology().c_str();
  options.username = rows.username().c_str();
  options.password = rows.password().c_str();
  options.database = rows.database();
  options.timeout_millis = rows.timeout_millis();
  options.max_reads = static_cast<uint64_t>(rows.max_reads());
  options.default_on_failure = rows.default_on_failure() ? 1 : 0;
  options.cache_rows = static_cast<uint64_t>(rows.cache_rows());
  options.cache_bytes = static_cast<uint64_t>(rows.cache_bytes());
  options.cache_lru = rows.cache_lru() ? 1 : 0;
  options.gpu_cache_bytes = static_cast<uint64_t>(rows.gpu_cache_bytes());
  options.gpu = rows.gpu();
  options.gpu_if_faster = rows.gpu_if_faster() ? 1 : 0;
  options.warm_up_rows_per_second = static_cast<uint64_t>(rows.warm_up_rows_per_second());
  options.shown = request.shown().version();
  options.fence = request.shown().fence();
  check(hr_serving_bind(name.c_str(), request.version(), request.manifest().c_str(), &options));
}

void lay_rows(const std::string& name, int64_t version, const hotrow::ShownCut& cut) {
  std::vector<hr_cut_layer> layers;
  for (const auto& layer : cut.layers())
    layers.push_back({layer.blocks().c_str(), layer.version()});
  check(hr_serving_show(name.c_str(), version, cut.version(), layers.data(), layers.size(),
                        cut.fence()));
}

}  // namespace

Servable::Servable(const hotrow::LoadRequest& request, const std::string& ops,
                   BatchThreads* threads)
    : request_(request), rows_(request.session()), shown_(request.shown()) {
  request_.clear_warm_up();
  request_.clear_shown();
  if (!request.manifest().empty()) {
    load_ops(ops);
    bind_rows(request, rows_);
    bound_ = true;
  }
  try {
    if (request.has_shown()) lay_rows(rows_, request.version(), request.shown());
    const std::vector<std::string> tags(request.tags().begin(), request.tags().end());
    session_ = std::make_unique<Session>(request.path(), tags, request.session_config());
    if (!request.shown().dense().empty()) session_->restore(request.shown().dense());
    tensorflow::serving::SignatureDefMap all;
    for (const auto& [name, def] : session_->signatures()) {
      (*all.mutable_signature_def())[name] = def;
      // Clients cannot call the signature of initialisation.
      if (name == "__saved_model_init_op") continue;
      signatures_[name] = std::make_unique<Signature>(name, def, *session_);
    }
    metadata_ = all.SerializeAsString();
    if (request.has_batching()) {
      batcher_ = std::make_unique<Batcher>(session_.get(), threads, request.batching());
    }
  } catch (...) {
    if (bound_) hr_serving_unbind(rows_.c_str(), request_.version());
    throw;
  }
}

Servable::~Servable() {
  batcher_.reset();
  session_.reset();
  if (bound_) hr_serving_unbind(rows_.c_str(), request_.version());
}

void Servable::run(Run run, Ended ended) const {
  if (batcher_ == nullptr) {
    ended(outcome_of([&] { return session_->run(run); }));
    return;
  }
  try {
    batcher_->run(std::move(run), ended);
  } catch (const Refused&) {
    ended(Outcome(std::current_exception()));
  }
}

void Servable::set_batching(const hotrow::Batching& options) {
  if (batcher_ == nullptr) {
    throw Refused(grpc::StatusCode::FAILED_PRECONDITION,
                  request_.model() + " does not batch requests");
  }
  *request_.mutable_batching() = options;
  batcher_->set_options(options);
}

void Servable::set_topology(const std::string& topology) {
  check(hr_serving_set_topology(rows_.c_str(), request_.version(), topology.c_str()));
  // A restarted process begins with this topology.
  request_.mutable_rows()->set_topology(topology);
}

bool Servable::shows_at_once(const hotrow::ShownCut& cut) const {
  return whole_ && cut.version() == shown_.version() && cut.identity() == shown_.identity() &&
         cut.dense() == shown_.dense();
}

void Servable::show(const hotrow::ShownCut& cut, bool forget_cached) {
  if (!bound_) {
    throw Refused(grpc::StatusCode::FAILED_PRECONDITION,
                  request_.model() + " has no rows of which there could be cuts");
  }
  const bool same_weights = whole_ && cut.dense() == shown_.dense();
  whole_ = shows_at_once(cut);
  lay_rows(rows_, request_.version(), cut);
  if (!same_weights) {
    session_->restore(cut.dense().empty() ? request_.path() + kVariables : cut.dense());
  }
  // Last: until then, the servable that answers finds the rows of its cut only in the cache.
  if (forget_cached) check(hr_serving_forget_cached(rows_.c_str(), request_.version()));
}

void Servable::note_shown(const hotrow::ShownCut& cut) {
  shown_ = cut;
  whole_ = true;
}

hotrow::LoadRequest Servable::loaded_by() const {
  hotrow::LoadRequest load = request_;
  if (shown_.ByteSizeLong() > 0) *load.mutable_shown() = shown_;
  return load;
}

void Servable::set_stale(bool stale) {
  check(hr_serving_set_stale(rows_.c_str(), request_.version(), stale ? 1 : 0));
  stale_ = stale;
}

const Signature* Servable::signature(const std::string& name) const {
  const auto found = signatures_.find(name);
  return found == signatures_.end() ? nullptr : found->second.get();
}

}  // namespace hotrow_server
