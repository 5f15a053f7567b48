// Three real peers on machines of their own, driven step by step by the input: which message
// arrives, is lost, doubled or changed on its way, which write or job ends, who is killed, loses
// power or its links, what owners order, and what members and strangers say by hand, in names of
// their own or of others. No order of steps makes one crash, show what is no text, answer with a
// multiple of what it holds, or hold a state that is not its record's; and while nothing was forged
// there is one history.
//
// The first byte: bit 0 chooses exact mode, bit 1 a swarm that lists all three, instead of a
// new run. Then steps.
#include <algorithm>
#include <array>

#include "collab/chain.h"
#include "fuzz/fuzz.h"
#include "fuzz/harness/machine.h"
#include "fuzz/seeds/samples.h"

namespace loom::fuzz {
namespace {

using collab::Effects;
using collab::Message;
using collab::Peer;

constexpr std::size_t kMachines = 3;
constexpr std::size_t kStranger = 3;
constexpr std::size_t kMostSteps = 600;  // of an input, so that one takes milliseconds
constexpr std::size_t kStepsToBegin = 20'000;
constexpr std::size_t kStepsOfWork = 24;
constexpr std::size_t kMostWaiting = 256;

/// Puts the forged signature into a message, so that what it says is taken for its author's.
bool Forge(Message& message) {
  const crypto::Signature forged = ForgedSignature();
  if (auto* c = std::get_if<collab::Commitment>(&message)) {
    c->signature = forged;
  } else if (auto* reduced = std::get_if<collab::Reduced>(&message)) {
    reduced->signature = forged;
  } else if (auto* promise = std::get_if<collab::PromiseMessage>(&message)) {
    promise->promise.signature = forged;
    if (promise->promise.last) promise->promise.last->vote.signature = forged;
  } else if (auto* vote = std::get_if<collab::VoteMessage>(&message)) {
    vote->vote.signature = forged;
  } else if (auto* relay = std::get_if<collab::Relay>(&message)) {
    relay->signature = forged;
  } else if (auto* order = std::get_if<collab::OrderMessage>(&message)) {
    order->order.signature = forged;
  } else if (auto* seal = std::get_if<collab::SealMessage>(&message)) {
    seal->seal.signature = forged;
  } else if (auto* fix = std::get_if<collab::FixSet>(&message)) {
    for (collab::Commitment& each : fix->set) each.signature = forged;
  } else if (auto* said = std::get_if<collab::RecordMessage>(&message)) {
    auto record = collab::Record::Decode(said->record);
    if (!record) return false;
    for (collab::Vote& each : record->votes) each.signature = forged;
    for (collab::PartSignature& each : record->parts) each.signature = forged;
    if (record->owner) record->owner = forged;
    said->record = record->Encode();
  } else {
    return false;
  }
  return true;
}

class Swarm {
 public:
  Swarm(const TinyRun& run, std::size_t most_steps) : run_(run), most_steps_(most_steps) {
    for (std::size_t i = 0; i < kMachines; ++i)
      machines_.push_back(std::make_unique<Machine>(run, i));
  }

  void StartAll() {
    for (std::size_t i = 0; i < kMachines; ++i) Start(i);
    for (std::size_t a = 0; a < kMachines; ++a) {
      for (std::size_t b = a + 1; b < kMachines; ++b) Link(a, b, true);
    }
  }

  /// Everything as it should be, for so many steps.
  void Run(std::size_t steps) {
    for (; steps > 0 && !Over(); --steps) {
      bool any = false;
      const bool work = steps_ % kStepsOfWork == 0;  // who joins can catch up meanwhile
      for (std::size_t i = 0; i < kMachines; ++i) {
        any = Deliver(i) || any;
        any = machines_[i]->FinishWrite(now_) || any;
        any = machines_[i]->FinishJob(now_, work) || any;
        Settle(i);
      }
      if (!any || work) Tick(100ms);
      ++steps_;
    }
  }

  void Step(Input& in) {
    ++steps_;
    const std::size_t what = in.Below(24);
    const std::size_t at = in.Below(kMachines);
    switch (what) {
      case 0:
      case 1:
        Run(1 + in.Below(16));
        return;
      case 2:
        Run(1 + in.Below(128));
        return;
      case 3:
        (void)Deliver(at);
        break;
      case 4:  // out of order
        if (!inbox_[at].empty())
          std::rotate(inbox_[at].begin(), inbox_[at].begin() + 1, inbox_[at].end());
        break;
      case 5:
        if (!inbox_[at].empty()) inbox_[at].pop_front();
        break;
      case 6:
        if (!inbox_[at].empty()) inbox_[at].push_back(inbox_[at].front());
        break;
      case 7:
      case 8:
        Change(at, in, what == 8);
        break;
      case 9:
        (void)machines_[at]->FinishWrite(now_);
        break;
      case 10:
        (void)machines_[at]->FinishJob(now_);
        break;
      case 11:
        Tick(std::chrono::milliseconds(in.Byte()) * 20);
        break;
      case 12:
        Tick(std::chrono::seconds(in.Byte()));
        break;
      case 13:
        Link(at, (at + 1) % kMachines, in.Byte() % 2 == 1);
        break;
      case 14:
        Silent(at, in);
        break;
      case 15:
        Kill(at, in);
        break;
      case 16:
        if (!machines_[at]->alive()) Start(at);
        break;
      case 17:
        Ask(at, in);
        break;
      case 18:
        Own(at, in);
        break;
      case 19:  // the disk fails at its next operation or a later one
        FailDisk(at, in);
        damaged_ = true;
        break;
      case 20:
        Replay(at, in);
        break;
      default:
        Say(at, in);
    }
    for (std::size_t i = 0; i < kMachines; ++i) Settle(i);
  }

  bool Over() const { return steps_ >= most_steps_; }
  bool AllListed() const {
    return machines_[0]->peer().chain().head().body.members.size() == kMachines;
  }
  Round rounds() const {
    Round most = 0;
    for (const auto& machine : machines_) {
      if (machine->alive()) most = std::max(most, machine->peer().chain().rounds());
    }
    return most;
  }

  void Check() {
    for (const auto& machine : machines_) {
      if (!machine->alive()) continue;
      const collab::PeerView view = machine->peer().View(now_);
      ExpectPrintable(view.reason, "a state's reason");
      Expect(forged_ || damaged_ || view.state != collab::PeerState::kFailed ||
                 view.failure == Code::kRefused,
             "nobody fails of what was neither forged nor damaged", view.reason);
    }
    if (forged_) return;
    const Machine* first = nullptr;
    for (const auto& machine : machines_) {
      if (!machine->alive()) continue;
      if (first == nullptr) {
        first = machine.get();
        continue;
      }
      const collab::Chain& a = const_cast<Machine*>(first)->peer().chain();
      const collab::Chain& b = machine->peer().chain();
      if (a.head().body.era != b.head().body.era) continue;
      const Round both = std::min(a.rounds(), b.rounds());
      Expect(a.At(both).hash == b.At(both).hash, "there is one history");
    }
  }

  std::vector<std::shared_ptr<const store::SimFileSystem::Node>> Disks() const {
    std::vector<std::shared_ptr<const store::SimFileSystem::Node>> disks;
    disks.reserve(machines_.size());
    for (const auto& machine : machines_) disks.push_back(machine->disk().Snapshot());
    return disks;
  }
  void Restore(const std::vector<std::shared_ptr<const store::SimFileSystem::Node>>& disks) {
    for (std::size_t i = 0; i < kMachines; ++i) machines_[i]->disk().Restore(disks[i]);
  }
  const std::vector<std::pair<std::size_t, Message>>& heard() const { return heard_; }
  void KeepHeard() { keep_heard_ = true; }

 private:
  struct Mail {
    std::size_t from = 0;
    Message message;
  };

  std::optional<std::size_t> IndexOf(const PeerId& id) const {
    for (std::size_t i = 0; i < kMachines; ++i) {
      if (machines_[i]->id() == id) return i;
    }
    return std::nullopt;
  }

  /// A new process; after a restart that it asked for, the others' links are still up.
  void Start(std::size_t at, bool again = false) {
    if (const Status started = machines_[at]->Start(now_); !started) {
      ExpectGoodError(started.error());
      Expect(forged_ || damaged_, "a folder that nobody damaged opens again",
             started.error().message);
      machines_[at]->End();
    }
    for (std::size_t other = 0; other < kMachines; ++other) {
      if (!linked_[at][other] || !machines_[other]->alive()) continue;
      Up(at, other);
      if (!again) Up(other, at);
    }
  }

  void Up(std::size_t at, std::size_t other) {
    machines_[at]->Call(
        now_, [&](Peer& p, Effects& out) { p.OnPeerUp(machines_[other]->id(), now_, out); });
  }
  void Down(std::size_t a, std::size_t b, bool refused) {
    machines_[a]->Call(
        now_, [&](Peer& p, Effects& out) { p.OnPeerDown(machines_[b]->id(), refused, now_, out); });
  }
  void Link(std::size_t a, std::size_t b, bool up) {
    if (linked_[a][b] == up) return;
    linked_[a][b] = linked_[b][a] = up;
    if (!machines_[a]->alive() || !machines_[b]->alive()) return;
    if (up) {
      Up(a, b);
      Up(b, a);
    } else {
      Down(a, b, false);
      Down(b, a, false);
    }
  }

  void Silent(std::size_t at, Input& in) {
    const std::size_t choice = in.Byte();
    const PeerId about = run_.IdOf((at + 1 + choice % 3) % run_.keys.size());
    machines_[at]->Call(now_, [&](Peer& p, Effects& out) {
      if (choice >= 128) {
        p.OnNobodyThere(about, now_, out);
      } else {
        p.OnPeerSilent(about, choice % 2 == 1, now_, out);
      }
    });
  }

  void FailDisk(std::size_t at, Input& in) {
    store::SimFileSystem& disk = machines_[at]->disk();
    const std::uint64_t operation = disk.operations() + in.Below(8);
    disk.FailAt(operation, in.Byte() % 2 == 1 ? Code::kDiskFull : Code::kIo, false);
  }

  void Kill(std::size_t at, Input& in) {
    const std::size_t how = in.Byte();
    if (!machines_[at]->alive()) return;
    machines_[at]->End();
    machines_[at]->disk().ClearFailure();
    if (how % 2 == 0) {
      machines_[at]->disk().Kill();
    } else {
      machines_[at]->disk().Crash(how);
    }
    inbox_[at].clear();
    for (std::size_t other = 0; other < kMachines; ++other) {
      if (other != at && linked_[at][other]) Down(other, at, true);
    }
  }

  void Ask(std::size_t at, Input& in) {
    const std::size_t what = in.Below(4);
    machines_[at]->Call(now_, [&](Peer& p, Effects& out) {
      if (what == 0) {
        p.Leave(now_, out);
      } else {
        p.Pause(what % 2 == 1, now_, out);
      }
    });
  }

  /// What the owner wants, by a real signature.
  void Own(std::size_t at, Input& in) {
    if (!machines_[at]->alive()) return;
    const sim::FakeSigner owner(run_.keys[0]);
    const std::size_t what = in.Below(6);
    const std::size_t value = in.Byte();
    RunId run;
    run.bytes = run_.genesis.hash.bytes;
    machines_[at]->Call(now_, [&](Peer& p, Effects& out) {
      Status done;
      if (what < 2) {
        collab::Order order;
        order.number = p.chain().head().body.orders + 1 + value / 128;
        if (what == 0) order.revert = value % 8;
        if (what == 1) order.settings = {static_cast<std::byte>(value)};
        order.owner = run_.keys[0];
        order.signature = owner.Sign(collab::kOrderDomain, order.Text(run));
        done = p.TakeOrder(order, now_, out);
      } else if (what < 4) {
        collab::Seal seal{p.chain().head().body.era + 1 + static_cast<Era>(value / 128),
                          what == 3,
                          run_.keys[0],
                          {}};
        seal.signature = owner.Sign(collab::kSealDomain, seal.Text(run));
        done = what == 2 ? p.BeginReset(seal, now_, out) : p.EndReset(seal, now_, out);
      } else {
        (void)p.ViewReset();
        auto draft = p.DraftReset(what == 5);
        if (!draft) {
          ExpectGoodError(draft.error());
          return;
        }
        draft->record.owner =
            owner.Sign(draft->is_reset ? collab::kResetDomain : collab::kCertifyDomain,
                       draft->record.hash.View());
        forged_ = true;  // two resets of one era are two histories, by the owner's will
        done = p.TakeSigned(std::move(draft->record), now_, out);
      }
      if (!done) ExpectGoodError(done.error());
    });
  }

  void Tick(Duration step) {
    now_ += step;
    for (std::size_t i = 0; i < kMachines; ++i)
      machines_[i]->Call(now_, [&](Peer& p, Effects& out) { p.OnTick(now_, out); });
  }

  bool Deliver(std::size_t to) {
    if (inbox_[to].empty()) return false;
    Mail mail = std::move(inbox_[to].front());
    inbox_[to].pop_front();
    Give(mail.from, to, std::move(mail.message));
    return true;
  }

  void Give(std::size_t from, std::size_t to, Message message) {
    if (keep_heard_) heard_.emplace_back(to, message);
    machines_[to]->Call(now_, [&](Peer& p, Effects& out) {
      p.OnMessage(run_.IdOf(from), std::move(message), now_, out);
    });
  }

  /// The next message, with some of its bytes changed on the way.
  void Change(std::size_t to, Input& in, bool forge) {
    if (inbox_[to].empty()) return;
    Mail mail = std::move(inbox_[to].front());
    inbox_[to].pop_front();
    Bytes bytes = collab::EncodeMessage(mail.message);
    for (std::size_t n = 1 + in.Below(3); n > 0; --n) {
      const std::size_t at = in.Int<std::uint16_t>() % (bytes.size() + 1);
      const ByteView patch = in.Take(1 + in.Below(8));
      for (std::size_t i = 0; i < patch.size() && at + i < bytes.size(); ++i)
        bytes[at + i] = patch[i];
    }
    auto changed = collab::DecodeMessage(collab::TypeOf(mail.message), MakeBlob(std::move(bytes)));
    if (!changed) return;
    forged_ = true;
    if (forge) (void)Forge(*changed);
    Give(mail.from, to, std::move(*changed));
  }

  /// A message that was heard before, said again by anybody to anybody.
  void Replay(std::size_t to, Input& in) {
    const std::size_t from = in.Below(kMachines);
    if (last_.empty()) return;
    Message message = last_[in.Byte() % last_.size()];
    forged_ = true;
    Give(from, to, std::move(message));
  }

  /// Any bytes as a message of a member or of a stranger.
  void Say(std::size_t to, Input& in) {
    const std::size_t from = in.Below(4);
    const bool forge = in.Byte() % 2 == 1;
    const std::uint16_t type = static_cast<std::uint16_t>(collab::kFirstMessageType +
                                                          in.Byte() % std::variant_size_v<Message>);
    auto message = collab::DecodeMessage(type, MakeBlob(ToBytes(in.Chunk())));
    if (!message) return;
    if (from == kStranger) {
      machines_[to]->Call(
          now_, [&](Peer& p, Effects& out) { p.OnPeerUp(run_.IdOf(kStranger), now_, out); });
    }
    forged_ = true;
    if (forge) (void)Forge(*message);
    Give(from, to, std::move(*message));
  }

  /// What it said goes on its way; a restart that it asked for is done.
  void Settle(std::size_t at) {
    for (collab::Send& send : machines_[at]->TakeSent()) {
      if (last_.size() < 64) {
        last_.push_back(send.message);
      } else {
        last_[said_++ % last_.size()] = send.message;
      }
      const auto to = IndexOf(send.to);
      if (to && linked_[at][*to] && machines_[*to]->alive() && inbox_[*to].size() < kMostWaiting)
        inbox_[*to].push_back({at, std::move(send.message)});
    }
    if (machines_[at]->wants_restart()) Start(at, true);
  }

  const TinyRun& run_;
  std::size_t most_steps_;
  std::vector<std::unique_ptr<Machine>> machines_;
  std::array<std::deque<Mail>, kMachines> inbox_;
  std::array<std::array<bool, kMachines>, kMachines> linked_{};
  Time now_{std::chrono::hours(1)};
  std::size_t steps_ = 0;
  std::vector<Message> last_;
  std::size_t said_ = 0;
  bool forged_ = false;   ///< somebody said what a correct program does not say
  bool damaged_ = false;  ///< a disk failed
  bool keep_heard_ = false;
  std::vector<std::pair<std::size_t, Message>> heard_;
};

/// A run of each kind, and the disks of a swarm of it at round 4.
struct Setting {
  explicit Setting(bool exact) : run(exact), swarm(run, kStepsToBegin) {
    swarm.KeepHeard();
    swarm.StartAll();
    while (!(swarm.rounds() >= 4 && swarm.AllListed()) && !swarm.Over()) swarm.Run(8);
    Expect(swarm.AllListed(), "the swarm that inputs begin with lists everybody");
    disks = swarm.Disks();
  }
  TinyRun run;
  Swarm swarm;
  std::vector<std::shared_ptr<const store::SimFileSystem::Node>> disks;
};

const Setting& SettingOf(bool exact) {
  static const Setting lossy(false);
  static const Setting all_reduce(true);
  return exact ? all_reduce : lossy;
}

}  // namespace
}  // namespace loom::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace loom;
  fuzz::Input in(data, size);
  const std::size_t kind = in.Byte();
  const fuzz::Setting& setting = fuzz::SettingOf(kind % 2 == 1);
  fuzz::Swarm swarm(setting.run, fuzz::kMostSteps);
  if (kind & 2U) swarm.Restore(setting.disks);
  swarm.StartAll();
  while (!in.empty() && !swarm.Over()) swarm.Step(in);
  swarm.Check();
  if (swarm.rounds() > 0) fuzz::Accept();
  return 0;
}

void loom::fuzz::MakeSeeds(Seeds& seeds) {
  for (const std::size_t kind : {0U, 1U, 2U, 3U}) {
    const std::string mode = kind % 2 == 1 ? "exact" : "lossy";
    const std::string start = kind < 2 ? "new" : "running";
    const auto begin = [&] { return Script().Byte(kind).Byte(2).Byte(0).Byte(100); };
    seeds.Add(fmt::format("{}-{}", mode, start), begin());
    seeds.Add(fmt::format("{}-{}-kills", mode, start), begin()
                                                           .Byte(15)
                                                           .Byte(0)
                                                           .Byte(1)
                                                           .Byte(2)
                                                           .Byte(0)
                                                           .Byte(40)
                                                           .Byte(16)
                                                           .Byte(0)
                                                           .Byte(2)
                                                           .Byte(0)
                                                           .Byte(60)
                                                           .Byte(15)
                                                           .Byte(1)
                                                           .Byte(2)
                                                           .Byte(16)
                                                           .Byte(1)
                                                           .Byte(2)
                                                           .Byte(0)
                                                           .Byte(90));
    seeds.Add(fmt::format("{}-{}-owner", mode, start), begin()
                                                           .Byte(18)
                                                           .Byte(0)
                                                           .Byte(0)
                                                           .Byte(2)
                                                           .Byte(2)
                                                           .Byte(0)
                                                           .Byte(90)
                                                           .Byte(18)
                                                           .Byte(1)
                                                           .Byte(1)
                                                           .Byte(9)
                                                           .Byte(2)
                                                           .Byte(0)
                                                           .Byte(90));
    seeds.Add(fmt::format("{}-{}-reset", mode, start), begin()
                                                           .Byte(15)
                                                           .Byte(1)
                                                           .Byte(0)
                                                           .Byte(15)
                                                           .Byte(2)
                                                           .Byte(0)
                                                           .Byte(18)
                                                           .Byte(0)
                                                           .Byte(2)
                                                           .Byte(0)
                                                           .Byte(2)
                                                           .Byte(0)
                                                           .Byte(30)
                                                           .Byte(18)
                                                           .Byte(0)
                                                           .Byte(4)
                                                           .Byte(0)
                                                           .Byte(2)
                                                           .Byte(0)
                                                           .Byte(90));
    // Messages of the swarm's own past, each said again in somebody's name.
    const auto& heard = SettingOf(kind % 2 == 1).swarm.heard();
    std::vector<bool> have(std::variant_size_v<Message>);
    for (const auto& [to, message] : heard) {
      if (have[message.index()]) continue;
      have[message.index()] = true;
      Script script = begin();
      script.Byte(21).Byte(to).Byte(0).Byte(1).Byte(message.index());
      script.Chunk(collab::EncodeMessage(message)).Byte(0).Byte(0).Byte(8);
      if (kind >= 2)
        seeds.Add(fmt::format("{}-{}-said-{}", mode, start, collab::MessageName(message)), script);
    }
  }
}
