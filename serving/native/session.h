// A SavedModel in a TensorFlow session. With `pure_signatures`, which looks into its graph, the
// only part of the server that talks to TensorFlow.
#pragma once

#include <tensorflow/c/c_api.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "run.h"
#include "tensorflow/core/protobuf/meta_graph.pb.h"

namespace hotrow_server {

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
  // The tensor that counts the default rows of a signature's samples; without an operation when
  // there is none.
  TF_Output default_rows(const std::string& signature) const;
  // Names of those that may run without anybody's asking.
  std::set<std::string> pure_signatures() const;

  // The tensor "x:0" or "x" of the graph; without an operation when it has none.
  TF_Output tensor(const std::string& name) const;

  // Safe from several threads.
  Results run(const Run& run) const;

 private:
  void close();
  void read_signatures(const TF_Buffer* meta_graph);

  TF_Graph* graph_ = nullptr;
  TF_Session* session_ = nullptr;
  Signatures signatures_;
  std::map<std::string, std::string> default_rows_;  // names of tensors by signature
  bool may_loop_ = false;                            // a run may take any time
};

// Has TensorFlow look for its devices, about which it says much.
void open_devices();

// Loads a library of ops into the process, once.
void load_ops(const std::string& path);

}  // namespace hotrow_server
