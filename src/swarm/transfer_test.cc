// A fetcher and donors on a virtual clock: links of different speed, donors that die, lie, stall,
// refuse; every run is drawn from a seed.
#include "swarm/transfer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

#include "crypto/hash.h"

namespace loom::swarm {
namespace {

PeerId Peer(int i) {
  PeerId id;
  id.bytes[0] = static_cast<std::byte>(i);
  return id;
}

struct Link {
  double bytes_per_second = 250e3;
  Time dies = Time::max();
  bool lies = false;
  bool stalls = false;  ///< takes requests, answers nothing
  int busy = 0;         ///< so many requests are answered "not now"
  double holds = 1;     ///< part of the objects it has
  bool announces = false;
  std::uint64_t served = 0;
  Time free{};  ///< when the link can send the next byte
};

class World {
 public:
  World(std::uint64_t seed, std::size_t objects) : rng_(seed), fetcher_({.seed = seed}) {
    for (std::size_t i = 0; i < objects; ++i) {
      Bytes bytes(1 + rng_() % 50'000);
      for (std::size_t at = 0; at < bytes.size(); at += 97)
        bytes[at] = static_cast<std::byte>(rng_());
      const Hash id = crypto::Sha256(bytes);
      refs_.push_back({id, static_cast<std::uint32_t>(bytes.size())});
      content_[id] = MakeBlob(std::move(bytes));
    }
  }

  void Add(int i, Link link) {
    std::set<Hash> has;
    for (const auto& [id, bytes] : content_) {
      if (static_cast<double>(rng_() % 1000) < link.holds * 1000) has.insert(id);
    }
    holds_[Peer(i)] = has;
    links_[Peer(i)] = link;
    Run(fetcher_.AddDonor(Peer(i), link.announces ? std::optional(has) : std::nullopt, now_));
  }

  void Want(const std::function<bool(const Hash&)>& held = nullptr) {
    auto effects = fetcher_.Want(refs_, held, now_);
    ASSERT_TRUE(effects);
    Run(std::move(*effects));
  }

  /// Until it is done, starved or nothing can happen any more.
  void Go(Duration limit) {
    const Time end = now_ + limit;
    while (!fetcher_.done() && now_ <= end) {
      std::optional<Time> next = fetcher_.NextTick();
      if (!events_.empty() && (!next || events_.begin()->first <= *next)) {
        next = events_.begin()->first;
      }
      for (const auto& [id, link] : links_) {
        if (link.dies != Time::max() && (!next || link.dies < *next)) next = link.dies;
      }
      if (!next) return;
      ASSERT_TRUE(*next >= now_) << "time goes back";
      if (*next == now_) {
        ASSERT_LT(++idle_turns_, 100'000) << "spins without progress";
      } else {
        idle_turns_ = 0;
      }
      now_ = *next;
      for (auto it = links_.begin(); it != links_.end();) {
        if (it->second.dies <= now_) {
          const PeerId gone = it->first;
          it = links_.erase(it);
          Run(fetcher_.RemoveDonor(gone, now_));
        } else {
          ++it;
        }
      }
      if (!events_.empty() && events_.begin()->first <= now_) {
        auto event = std::move(events_.begin()->second);
        events_.erase(events_.begin());
        if (links_.contains(event.from)) {
          Run(event.not_here ? fetcher_.OnNotHere(event.from, *event.not_here, now_)
                             : fetcher_.OnData(event.from, event.data, now_));
        }
      } else {
        Run(fetcher_.Tick(now_));
      }
    }
  }

  void Run(Fetcher::Effects effects) {
    for (const FetchEffect& effect : effects) {
      if (const auto* send = std::get_if<SendGet>(&effect)) {
        ASSERT_LE(send->message.ids.size(), kMaxIdsPerMessage);
        for (const Hash& id : send->message.ids) Serve(send->to, id);
      } else if (const auto* store = std::get_if<StoreObject>(&effect)) {
        EXPECT_EQ(crypto::Sha256(*store->bytes), store->id);
        EXPECT_TRUE(stored_.insert(store->id).second) << "stored twice";
      } else if (const auto* blame = std::get_if<BlameDonor>(&effect)) {
        blamed_.push_back(blame->donor);
      } else {
        ++told_done_;
      }
    }
  }

  void Serve(const PeerId& to, const Hash& id) {
    const auto found = links_.find(to);
    ASSERT_NE(found, links_.end()) << "asks a donor that is gone";
    Link& link = found->second;
    ++asked_;
    EXPECT_EQ(std::count(blamed_.begin(), blamed_.end(), to), 0) << "asks a liar";
    if (link.stalls) return;
    Event event{to, {id, content_.at(id)}, std::nullopt};
    if (!holds_[to].contains(id)) {
      event.not_here = NotHere{{id}, false};
    } else if (link.busy > 0) {
      --link.busy;
      event.not_here = NotHere{{id}, true};
    } else if (link.lies) {
      Bytes wrong = *content_.at(id);
      wrong[0] ^= std::byte{1};
      event.data.bytes = MakeBlob(std::move(wrong));
    }
    const double seconds =
        event.not_here ? 0 : static_cast<double>(content_.at(id)->size()) / link.bytes_per_second;
    link.free = std::max(link.free, now_) + FromSeconds(seconds);
    link.served += event.not_here ? 0 : content_.at(id)->size();
    events_.emplace(link.free + 20ms, std::move(event));
  }

  struct Event {
    PeerId from;
    ObjectData data;
    std::optional<NotHere> not_here;
  };

  std::mt19937_64 rng_;
  Fetcher fetcher_;
  Time now_{};
  std::vector<ObjectRef> refs_;
  std::map<Hash, Blob> content_;
  std::map<PeerId, Link> links_;
  std::map<PeerId, std::set<Hash>> holds_;
  std::multimap<Time, Event> events_;
  std::set<Hash> stored_;
  std::vector<PeerId> blamed_;
  int told_done_ = 0;
  int idle_turns_ = 0;
  std::uint64_t asked_ = 0;
};

// R11: several donors at once; one dies, one lies, one is slow, one is good.
TEST(Transfer, R11OneDonorDiesOneLiesOneIsSlow) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed, 60);
    Link dies;
    dies.dies = Time{} + FromSeconds(static_cast<double>(1 + seed % 17) * 0.1);
    Link lies;
    lies.lies = true;
    Link slow;
    slow.bytes_per_second = 12e3;
    world.Add(1, dies);
    world.Add(2, lies);
    world.Add(3, slow);
    world.Want();
    world.Go(10min);
    ASSERT_TRUE(world.fetcher_.done());
    EXPECT_EQ(world.stored_.size(), 60u);
    EXPECT_EQ(world.blamed_, std::vector{Peer(2)});
    EXPECT_EQ(world.told_done_, 1);
    const FetchProgress progress = world.fetcher_.Progress(world.now_);
    EXPECT_EQ(progress.bytes_done, progress.bytes_total);
    EXPECT_EQ(progress.liars, std::vector{Peer(2)});
    EXPECT_FALSE(world.fetcher_.NextTick());
  }
}

TEST(Transfer, ASlowDonorDoesNotHoldUpFastOnes) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed, 200);
    Link slow;
    slow.bytes_per_second = 1.2e3;
    world.Add(1, Link{});
    world.Add(2, Link{});
    world.Add(3, slow);
    world.Want();
    world.Go(10min);
    ASSERT_TRUE(world.fetcher_.done());
    double total = 0;
    for (const ObjectRef& ref : world.refs_) total += ref.size;
    EXPECT_LT(Seconds(world.now_ - Time{}), total / 500e3 * 1.3 + 3) << "two links of 250 kB/s";
    EXPECT_LT(world.asked_, 200u + 40u) << "few objects are asked of two";
  }
}

TEST(Transfer, SharesTheWorkBySpeed) {
  World world(5, 400);
  Link fast;
  fast.bytes_per_second = 1e6;
  world.Add(1, fast);
  world.Add(2, Link{});
  world.Want();
  world.Go(10min);
  ASSERT_TRUE(world.fetcher_.done());
  const double ratio = static_cast<double>(world.links_[Peer(1)].served) /
                       static_cast<double>(world.links_[Peer(2)].served);
  EXPECT_GT(ratio, 2.5);
  EXPECT_LT(ratio, 6);
}

TEST(Transfer, AStalledDonorIsLeftForOthers) {
  World world(3, 40);
  Link stalls;
  stalls.stalls = true;
  world.Add(1, stalls);
  world.Add(2, Link{});
  world.Want();
  world.Go(1min);
  EXPECT_TRUE(world.fetcher_.done());
  EXPECT_LT(Seconds(world.now_ - Time{}), 15);
}

TEST(Transfer, ABusyDonorIsAskedAgainLater) {
  World world(8, 20);
  Link busy;
  busy.busy = 6;
  world.Add(1, busy);
  world.Want();
  world.Go(1min);
  EXPECT_TRUE(world.fetcher_.done());
  EXPECT_EQ(world.asked_, 26u);
  EXPECT_GT(Seconds(world.now_ - Time{}), 0.5) << "with a pause in between";
}

TEST(Transfer, DonorsThatComeAndGoNeverLoseAnObject) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed, 40);
    world.Want();
    int next = 1;
    for (int turn = 0; turn < 12; ++turn) {
      Link link;
      link.bytes_per_second = 20e3 + static_cast<double>(world.rng_() % 400'000);
      link.stalls = world.rng_() % 5 == 0;
      link.lies = world.rng_() % 6 == 0;
      link.announces = world.rng_() % 2 == 0;
      link.holds = 0.3 + static_cast<double>(world.rng_() % 7) / 10;
      link.dies = world.now_ + FromSeconds(0.1 + static_cast<double>(world.rng_() % 50) / 10);
      world.Add(next++, link);
      world.Go(std::chrono::milliseconds(world.rng_() % 1500));
      if (testing::Test::HasFatalFailure()) return;
    }
    world.Add(100, Link{});
    world.Go(10min);
    EXPECT_TRUE(world.fetcher_.done());
    EXPECT_EQ(world.stored_.size(), 40u);
  }
}

TEST(Transfer, DonorsWithPartsAreEnoughTogether) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    World world(seed, 50);
    Link part;
    part.holds = 0.6;
    part.announces = seed % 2 == 0;
    for (int i = 1; i <= 4; ++i) world.Add(i, part);
    world.Want();
    world.Go(10min);
    std::set<Hash> anyone;
    for (const auto& [peer, has] : world.holds_) anyone.insert(has.begin(), has.end());
    EXPECT_EQ(world.stored_, anyone);
    EXPECT_EQ(world.fetcher_.starved(), anyone.size() < 50);
    if (world.fetcher_.starved()) {
      world.Add(9, Link{});
      world.Go(10min);
    }
    EXPECT_TRUE(world.fetcher_.done());
  }
}

TEST(Transfer, ResumesWithWhatIsHeld) {
  World world(2, 30);
  std::set<Hash> held;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < 20; ++i) {
    held.insert(world.refs_[i].id);
    bytes += world.refs_[i].size;
  }
  world.Want([&](const Hash& id) { return held.contains(id); });
  EXPECT_EQ(world.fetcher_.Progress(world.now_).bytes_done, bytes);
  EXPECT_TRUE(world.fetcher_.starved()) << "no donor yet";
  world.Add(1, Link{});
  world.Go(1min);
  EXPECT_TRUE(world.fetcher_.done());
  EXPECT_EQ(world.stored_.size(), 10u);
  EXPECT_EQ(world.asked_, 10u);
}

TEST(Transfer, NothingToFetchIsDoneAtOnce) {
  World world(2, 3);
  world.Want([](const Hash&) { return true; });
  EXPECT_EQ(world.told_done_, 1);
  EXPECT_TRUE(world.fetcher_.done());
  Fetcher fetcher({});
  EXPECT_FALSE(fetcher.Want({{Hash(), kMaxObjectBytes + 1}}, nullptr, Time{}));
}

TEST(Transfer, SameSeedSameRequests) {
  const auto served = [] {
    World world(11, 80);
    Link part;
    part.holds = 0.7;
    for (int i = 1; i <= 3; ++i) world.Add(i, part);
    world.Add(4, Link{});
    world.Want();
    world.Go(10min);
    std::vector<std::uint64_t> out{
        static_cast<std::uint64_t>(world.now_.time_since_epoch().count())};
    for (const auto& [id, link] : world.links_) out.push_back(link.served);
    return out;
  };
  EXPECT_EQ(served(), served());
}

TEST(Transfer, UnaskedAndStrangeBytesChangeNothing) {
  World world(4, 5);
  world.Add(1, Link{});
  world.Want();
  const Time now = world.now_;
  EXPECT_TRUE(world.fetcher_.OnData(Peer(1), {Hash(), MakeBlob({})}, now).empty());
  EXPECT_TRUE(world.fetcher_.OnData(Peer(7), {world.refs_[0].id, MakeBlob({})}, now).empty());
  EXPECT_TRUE(world.fetcher_.OnNotHere(Peer(7), {{world.refs_[0].id}, false}, now).empty());
  EXPECT_EQ(world.fetcher_.Progress(now).objects_done, 0u);
  world.Go(1min);
  EXPECT_TRUE(world.fetcher_.done());
}

TEST(Donor, AnswersWhatItHasWithinItsBounds) {
  std::map<Hash, Blob> have;
  std::vector<Hash> ids;
  for (int i = 0; i < 5; ++i) {
    Bytes bytes(100, static_cast<std::byte>(i));
    ids.push_back(crypto::Sha256(bytes));
    have[ids.back()] = MakeBlob(std::move(bytes));
  }
  Donor donor({.peer_bytes = 350, .peer_requests = 10}, [&](const Hash& id) {
    const auto found = have.find(id);
    return found == have.end() ? std::nullopt
                               : std::optional(static_cast<std::uint32_t>(found->second->size()));
  });
  ids.push_back(Hash());
  const Donor::Step step = donor.OnGet(Peer(1), {ids});
  EXPECT_EQ(step.lookups.size(), 3u);
  ASSERT_EQ(step.answers.size(), 2u);
  EXPECT_EQ(std::get<NotHere>(step.answers[0].message).ids, std::vector{Hash()});
  EXPECT_FALSE(std::get<NotHere>(step.answers[0].message).busy);
  EXPECT_EQ(std::get<NotHere>(step.answers[1].message).ids.size(), 2u);
  EXPECT_TRUE(std::get<NotHere>(step.answers[1].message).busy);
  EXPECT_EQ(donor.OnGet(Peer(2), {{ids[4]}}).lookups.size(), 1u) << "bounds are per peer";

  const Donor::Step found = donor.Found(Peer(1), ids[0], have[ids[0]]);
  ASSERT_EQ(found.answers.size(), 1u);
  EXPECT_EQ(std::get<ObjectData>(found.answers[0].message).id, ids[0]);
  const Donor::Step lost = donor.Found(Peer(1), ids[1], nullptr);
  EXPECT_EQ(std::get<NotHere>(lost.answers.at(0).message).ids, std::vector{ids[1]});
  EXPECT_TRUE(donor.Found(Peer(1), ids[1], have[ids[1]]).answers.empty()) << "answered already";
  EXPECT_EQ(donor.outstanding(Peer(1)), 200u);
  donor.Written(Peer(1), 100);
  EXPECT_EQ(donor.outstanding(Peer(1)), 100u);
  donor.RemovePeer(Peer(1));
  EXPECT_EQ(donor.outstanding(Peer(1)), 0u);
  EXPECT_TRUE(donor.Found(Peer(1), ids[2], have[ids[2]]).answers.empty());
}

template <class Message>
Bytes Encoded(const Message& message) {
  wire::Writer out;
  message.Encode(out);
  return std::move(out).Take();
}

TEST(TransferMessages, RoundTripAndCaps) {
  const Hash id = crypto::Sha256(AsBytes("x"));
  EXPECT_EQ(GetObjects::Decode(Encoded(GetObjects{{id, id}}))->ids, (std::vector{id, id}));
  const auto not_here = NotHere::Decode(Encoded(NotHere{{id}, true}));
  EXPECT_TRUE(not_here->busy);
  const auto data = ObjectData::Decode(Encoded(ObjectData{id, MakeBlob(ToBytes(AsBytes("x")))}));
  EXPECT_EQ(AsText(*data->bytes), "x");
  EXPECT_FALSE(GetObjects::Decode(Encoded(GetObjects{std::vector<Hash>(kMaxIdsPerMessage + 1)})));
  EXPECT_FALSE(ObjectData::Decode(Encoded(ObjectData{id, MakeBlob(Bytes(kMaxObjectBytes + 1))})));
  const Bytes whole = Encoded(NotHere{{id}, true});
  for (std::size_t i = 0; i < whole.size(); ++i) {
    EXPECT_FALSE(NotHere::Decode(ByteView(whole).first(i)));
  }
}

}  // namespace
}  // namespace loom::swarm
