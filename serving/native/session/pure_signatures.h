// Which signatures of a graph may run without a client's request: those that change nothing.
#pragma once

#include <tensorflow/c/c_api.h>

#include <map>
#include <set>
#include <string>

#include "tensorflow/core/protobuf/meta_graph.pb.h"

namespace hotrow_server {

// Returns the names of signatures whose outputs depend on no op that could change something: a
// variable, a table, a file, the log. Ops and functions that cannot be inspected count as changing
// something.
std::set<std::string> pure_signatures(
    TF_Graph* graph, const std::map<std::string, tensorflow::SignatureDef>& signatures);

}  // namespace hotrow_server
