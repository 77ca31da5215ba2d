// A SavedModel in a TensorFlow session. With `pure_signatures`, which reads its graph, the only
// part of the server that calls TensorFlow.
#pragma once

#include <tensorflow/c/c_api.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "session/run.h"
#include "tensorflow/core/protobuf/meta_graph.pb.h"
#include "tensorflow/core/protobuf/saver.pb.h"

namespace hotrow_server {

// Whether a run takes so long, or so unknown a time, that its thread hands its work over first.
bool takes_long(const Run& run);

class Session {
 public:
  using Signatures = std::map<std::string, tensorflow::SignatureDef>;

  // session_config: a serialized ConfigProto; empty: TensorFlow's defaults. Fails with the code and
  // the message of TensorFlow.
  Session(const std::string& path, const std::vector<std::string>& tags,
          const std::string& session_config);
  ~Session() { close(); }
  Session(const Session&) = delete;

  const Signatures& signatures() const { return signatures_; }
  // A tensor with counts of a signature's samples, by the name in our exports; clients cannot fetch
  // it. Without an operation when there is none.
  TF_Output report(const std::string& signature, const std::string& name) const;
  // Names of the signatures that may run without a client's request.
  std::set<std::string> pure_signatures() const;

  // The tensor "x:0" or "x" of the graph; without an operation when the graph has none.
  TF_Output tensor(const std::string& name) const;

  // Safe from several threads.
  Results run(const Run& run) const;

  // Restores the variables from a checkpoint with the same keys as the SavedModel's own; no run may
  // be in flight. prefix: of its files. Fails with TensorFlow's code and message; some variables
  // may then have changed.
  void restore(const std::string& prefix) const;

 private:
  void close();
  void read_meta_graph(const TF_Buffer* meta_graph);
  void read_signature(const std::string& entry);

  TF_Graph* graph_ = nullptr;
  TF_Session* session_ = nullptr;
  Signatures signatures_;
  // Names of tensors by signature and name.
  std::map<std::pair<std::string, std::string>, std::string> reports_;
  tensorflow::SaverDef saver_;
  bool may_loop_ = false;  // a run may take any time
};

// Lets lookups in the threads of requests wait there for the store; others wait in threads of their
// own.
void wait_in_threads_of_requests();

// Makes TensorFlow search for devices but GPUs, about which it logs much.
void open_devices();

// Loads a library of ops into the process, once.
void load_ops(const std::string& path);

}  // namespace hotrow_server
