#include "node/checkup.h"

#include <algorithm>
#include <set>

#include "node/reach.h"

namespace loom::node {

Checkup::Checkup(const std::map<PeerId, Neighbour>& neighbours, std::vector<swarm::Address> own,
                 Time now, net::ControlServer::Reply reply)
    : own_(std::move(own)), until_(now + kLimit), reply_(std::move(reply)) {
  std::set<std::string> places;
  std::vector<PeerId> rest;
  for (const auto& [peer, neighbour] : neighbours) {
    if ((neighbour.features & kAnswersDialBack) == 0) continue;
    const std::string place = neighbour.remote ? neighbour.remote->host : "";
    (places.insert(place).second ? asked_ : rest).push_back(peer);
  }
  asked_.insert(asked_.end(), rest.begin(), rest.end());
  if (asked_.size() > kMaxAsked) asked_.resize(kMaxAsked);
  for (const PeerId& peer : asked_) answers_[peer].version = neighbours.at(peer).version;
}

void Checkup::OnView(const PeerId& from, const View& view, std::int64_t wall_now) {
  const auto it = answers_.find(from);
  if (it == answers_.end()) return;
  it->second.view = view;
  it->second.clock_offset = view.now - wall_now;
}

void Checkup::OnDialedBack(const PeerId& from, const DialedBack& back) {
  const auto it = answers_.find(from);
  const bool asked = std::find(own_.begin(), own_.end(), back.address) != own_.end();
  if (it != answers_.end() && asked) it->second.dialled[back.address] = back;
}

bool Checkup::Over(Time now) const {
  return now >= until_ || std::all_of(answers_.begin(), answers_.end(), [&](const auto& entry) {
           return entry.second.view && entry.second.dialled.size() == own_.size();
         });
}

json::Array Checkup::Json() const {
  json::Array out;
  for (const PeerId& peer : asked_) {
    const Answer& answer = answers_.at(peer);
    json::Array dialled;
    for (const swarm::Address& address : own_) {
      json::Object one{{"address", json::Value(address.ToString())}};
      const auto it = answer.dialled.find(address);
      if (it == answer.dialled.end()) {
        one.emplace_back("result", json::Value("no_answer"));
      } else if (it->second.outcome == DialedBack::Outcome::kReached) {
        one.emplace_back("result", json::Value("reached"));
      } else if (it->second.outcome == DialedBack::Outcome::kNotTried) {
        one.emplace_back("result", json::Value("not_tried"));
        one.emplace_back("error", json::Value(it->second.text));
      } else {
        const DialedBack& back = it->second;
        one.emplace_back("result", json::Value("failed"));
        one.emplace_back("step", json::Value(std::string(net::DialStepName(back.step))));
        one.emplace_back("code", json::Value(std::string(CodeName(back.code))));
        one.emplace_back("failure", json::Value(FailureName(back.step, back.code)));
        one.emplace_back("error", json::Value(back.text));
      }
      dialled.emplace_back(std::move(one));
    }
    json::Object row{{"peer", json::Value(peer.Hex())}, {"version", json::Value(answer.version)}};
    if (answer.view) {
      row.emplace_back("seen_as", json::Value(answer.view->address));
      row.emplace_back("clock_offset_s", json::Value(static_cast<double>(answer.clock_offset)));
    }
    row.emplace_back("dialled", json::Value(std::move(dialled)));
    out.emplace_back(std::move(row));
  }
  return out;
}

}  // namespace loom::node
