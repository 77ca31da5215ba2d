#include "servable.h"

#include "core/c_api.h"
#include "refused.h"
#include "tensorflow_serving/apis/get_model_metadata.pb.h"

namespace hotrow_server {
namespace {

void check(int code) {
  if (code != 0) throw Refused(static_cast<grpc::StatusCode>(code), hr_last_error());
}

void bind_rows(const hotrow::LoadRequest& request) {
  const hotrow::Rows& rows = request.rows();
  hr_serving_options options{};
  options.store = request.store().c_str();
  options.generation = rows.generation().c_str();
  options.topology = rows.topology().c_str();
  options.username = rows.username().c_str();
  options.password = rows.password().c_str();
  options.database = rows.database();
  options.timeout_millis = rows.timeout_millis();
  options.default_on_failure = rows.default_on_failure() ? 1 : 0;
  options.cache_rows = static_cast<uint64_t>(rows.cache_rows());
  options.cache_bytes = static_cast<uint64_t>(rows.cache_bytes());
  options.cache_lru = rows.cache_lru() ? 1 : 0;
  check(hr_serving_bind(request.model().c_str(), request.version(), request.manifest().c_str(),
                        &options));
}

}  // namespace

Servable::Servable(const hotrow::LoadRequest& request, const std::string& ops,
                   BatchThreads* threads)
    : request_(request) {
  request_.clear_warm_up();
  if (!request.manifest().empty()) {
    load_ops(ops);
    bind_rows(request);
    bound_ = true;
  }
  try {
    const std::vector<std::string> tags(request.tags().begin(), request.tags().end());
    session_ = std::make_unique<Session>(request.path(), tags, request.session_config());
    tensorflow::serving::SignatureDefMap all;
    for (const auto& [name, def] : session_->signatures()) {
      (*all.mutable_signature_def())[name] = def;
      // Those of initialisation are no client's.
      if (name == "__saved_model_init_op") continue;
      signatures_[name] = std::make_unique<Signature>(name, def, *session_);
    }
    metadata_ = all.SerializeAsString();
    if (request.has_batching()) {
      batcher_ = std::make_unique<Batcher>(session_.get(), threads, request.batching());
    }
  } catch (...) {
    if (bound_) hr_serving_unbind(request_.model().c_str(), request_.version());
    throw;
  }
}

Servable::~Servable() {
  batcher_.reset();
  session_.reset();
  if (bound_) hr_serving_unbind(request_.model().c_str(), request_.version());
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
  check(hr_serving_set_topology(request_.model().c_str(), request_.version(), topology.c_str()));
  // A process that is started again begins with it.
  request_.mutable_rows()->set_topology(topology);
}

const Signature* Servable::signature(const std::string& name) const {
  const auto found = signatures_.find(name);
  return found == signatures_.end() ? nullptr : found->second.get();
}

}  // namespace hotrow_server
