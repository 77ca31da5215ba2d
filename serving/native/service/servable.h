// A loaded version of a model: its session, signatures, and the tables of its lookups.
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
  // The request that would load it in its current state. Only one thread at a time may call this or
  // the functions that change it.
  hotrow::LoadRequest loaded_by() const;
  // The name by which, with the version, its lookups find its tables.
  const std::string& rows() const { return rows_; }
  // Calls `ended` once, at once or later from another thread; `ended` keeps the servable alive
  // until then.
  void run(Run run, Ended ended) const;
  // Whether `run` would occupy its thread for long.
  bool occupies(const Run& run) const { return batcher_ == nullptr && takes_long(run); }
  // Runs unbatched, in this thread. Fails with TensorFlow's code and message.
  Results run_alone(const Run& run) const { return session_->run(run); }
  // Fails with FAILED_PRECONDITION when its requests are not batched.
  void set_batching(const hotrow::Batching& options);
  // Sets the new nodes of its store. Fails with FAILED_PRECONDITION when the store has no nodes.
  void set_topology(const std::string& topology);
  // Whether a cut can be shown while requests run: only its layers differ.
  bool shows_at_once(const hotrow::ShownCut& cut) const;
  // Answers with the rows and weights of a cut from now on. Unless shows_at_once, no request may
  // run meanwhile. After a failure, no route may lead to it until another call succeeds.
  // forget_cached: cached rows may be older than the store's.
  void show(const hotrow::ShownCut& cut, bool forget_cached);
  // Records the cut that it shows.
  void note_shown(const hotrow::ShownCut& cut);
  // Sets whether rows in memory may be old because the store cannot be followed.
  void set_stale(bool stale);
  bool stale() const { return stale_.load(std::memory_order_relaxed); }
  // Whether its tables, with their counters, are its own.
  bool has_own_tables() const { return bound_ && request_.shares() == 0; }
  // Null: it has none of that name.
  const Signature* signature(const std::string& name) const;
  // Names of the signatures that change nothing.
  std::set<std::string> pure_signatures() const { return session_->pure_signatures(); }
  // All signatures, serialized as a SignatureDefMap.
  const std::string& metadata() const { return metadata_; }

 private:
  hotrow::LoadRequest request_;
  std::string rows_;
  bool bound_ = false;
  hotrow::ShownCut shown_;
  bool whole_ = true;  // rows and weights are shown_'s
  std::atomic<bool> stale_{false};
  std::unique_ptr<Session> session_;
  std::unique_ptr<Batcher> batcher_;  // null: each request has a run of its own
  std::map<std::string, std::unique_ptr<Signature>> signatures_;
  std::string metadata_;
};

}  // namespace hotrow_server
