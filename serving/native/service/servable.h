// A version of a model, loaded: its session, signatures, and the tables behind its lookups.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "batching/batcher.h"
#include "hotrow/protos/control.pb.h"
#include "session/session.h"
#include "session/signature.h"

namespace hotrow_server {

class Servable {
 public:
  // Binds the tables and loads the SavedModel. ops: the library of our ops. threads: for batches;
  // they outlive it.
  Servable(const hotrow::LoadRequest& request, const std::string& ops, BatchThreads* threads);
  ~Servable();
  Servable(const Servable&) = delete;

  const hotrow::LoadRequest& request() const { return request_; }
  // What would load it as it is now. One thread at a time, and those that change it.
  hotrow::LoadRequest loaded_by() const;
  // Calls `ended` once, at once or later from another thread; it keeps the servable until then.
  void run(Run run, Ended ended) const;
  // Runs alone, in this thread. Fails with the code and the message of TensorFlow.
  Results run_alone(const Run& run) const { return session_->run(run); }
  // Fails with FAILED_PRECONDITION when its requests are not batched.
  void set_batching(const hotrow::Batching& options);
  // The nodes of its store are others now. Fails with FAILED_PRECONDITION when that has none.
  void set_topology(const std::string& topology);
  // Whether a cut can be shown while requests run: only its layers are others.
  bool shows_at_once(const hotrow::ShownCut& cut) const;
  // Answers with the rows and weights of a cut from now on. Unless it shows at once, no request may
  // run. When it fails it must not be routed to before another call succeeds. forget_cached: cached
  // rows may be older than those of the store.
  void show(const hotrow::ShownCut& cut, bool forget_cached);
  // Notes that it does.
  void note_shown(const hotrow::ShownCut& cut);
  // Rows in memory may be old, since the store cannot be followed.
  void set_stale(bool stale);
  bool stale() const { return stale_.load(std::memory_order_relaxed); }
  // With their counts.
  bool has_own_tables() const { return bound_ && request_.shares() == 0; }
  // Null: it has none of that name.
  const Signature* signature(const std::string& name) const;
  // Names of those that change nothing.
  std::set<std::string> pure_signatures() const { return session_->pure_signatures(); }
  // All of them, serialized as a SignatureDefMap.
  const std::string& metadata() const { return metadata_; }

 private:
  hotrow::LoadRequest request_;
  std::string rows_;  // what its lookups find its tables by, with the version
  bool bound_ = false;
  hotrow::ShownCut shown_;
  bool whole_ = true;  // rows and weights are those of shown_
  std::atomic<bool> stale_{false};
  std::unique_ptr<Session> session_;
  std::unique_ptr<Batcher> batcher_;  // null: each request has a run of its own
  std::map<std::string, std::unique_ptr<Signature>> signatures_;
  std::string metadata_;
};

}  // namespace hotrow_server
