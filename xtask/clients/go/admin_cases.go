package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var adminCases = []testCase{
	{"admin-topics", adminTopics},
	{"admin-configs", adminConfigs},
	{"admin-cluster", adminCluster},
	{"admin-offsets", adminOffsets},
	{"admin-groups", adminGroups},
	{"leader-epochs", leaderEpochs},
}

func refused(what string, found, expected error) error {
	if !errors.Is(found, expected) {
		return same(what, found, expected)
	}
	return nil
}

func adminTopics(ctx context.Context, b *bench) error {
	topic, err := b.topic(ctx, "admin", 2)
	if err != nil {
		return err
	}
	return b.admin(func(admin *kadm.Client) error {
		_, err := admin.CreateTopic(ctx, 1, 1, nil, topic)
		odd := map[string]*string{"no.such.config": kadm.StringPtr("1")}
		_, oddErr := admin.CreateTopic(ctx, 1, 1, odd, b.name("odd"))
		if err := all(refused("a name twice", err, kerr.TopicAlreadyExists),
			refused("an unknown config", oddErr, kerr.InvalidConfig)); err != nil {
			return err
		}
		if _, err := admin.UpdatePartitions(ctx, 5, topic); err != nil {
			return err
		}
		err = eventually(func() error {
			found, err := admin.ListTopics(ctx, topic)
			return all(err, same("partitions", len(found[topic].Partitions), 5))
		})
		if err != nil {
			return err
		}
		if _, err := admin.DeleteTopic(ctx, topic); err != nil {
			return err
		}
		return eventually(func() error {
			found, err := admin.ListTopics(ctx)
			return all(err, same("still listed", found.Has(topic), false))
		})
	})
}

func adminConfigs(ctx context.Context, b *bench) error {
	topic, err := b.topic(ctx, "configs", 1)
	if err != nil {
		return err
	}
	return b.admin(func(admin *kadm.Client) error {
		alter := func(name, value string) error {
			change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: kadm.StringPtr(value)}}
			results, err := admin.AlterTopicConfigs(ctx, change, topic)
			if err != nil {
				return err
			}
			return results[0].Err
		}
		if err := all(alter("retention.ms", "60000"),
			refused("a bad value", alter("retention.ms", "soon"), kerr.InvalidConfig)); err != nil {
			return err
		}
		return eventually(func() error {
			described, err := admin.DescribeTopicConfigs(ctx, topic)
			if err != nil {
				return err
			}
			for _, config := range described[0].Configs {
				if config.Key == "retention.ms" {
					return same("retention.ms", config.MaybeValue(), "60000")
				}
			}
			return errors.New("retention.ms is not described")
		})
	})
}

func adminCluster(ctx context.Context, b *bench) error {
	return b.admin(func(admin *kadm.Client) error {
		metadata, err := admin.BrokerMetadata(ctx)
		if err != nil {
			return err
		}
		versions, err := admin.ApiVersions(ctx)
		if err != nil {
			return err
		}
		return all(
			same("nodes", len(metadata.Brokers), 1),
			same("controller", metadata.Controller, metadata.Brokers[0].NodeID),
			same("a cluster id", metadata.Cluster != "", true),
			same("answers to ApiVersions", len(versions), 1),
		)
	})
}

func adminOffsets(ctx context.Context, b *bench) error {
	topic, err := b.topic(ctx, "offsets", 1)
	if err != nil {
		return err
	}
	if err := b.produce(ctx, topic, "v", 20); err != nil {
		return err
	}
	return b.admin(func(admin *kadm.Client) error {
		at := func(listed kadm.ListedOffsets, err error) int64 {
			found, _ := listed.Lookup(topic, 0)
			if err != nil || found.Err != nil {
				return -100
			}
			return found.Offset
		}
		tomorrow := time.Now().Add(24 * time.Hour).UnixMilli()
		largest := at(admin.ListMaxTimestampOffsets(ctx, topic))
		err := all(
			same("start", at(admin.ListStartOffsets(ctx, topic)), 0),
			same("end", at(admin.ListEndOffsets(ctx, topic)), 20),
			same("end of what is committed", at(admin.ListCommittedOffsets(ctx, topic)), 20),
			same("from 1970 on", at(admin.ListOffsetsAfterMilli(ctx, 1, topic)), 0),
			same("from tomorrow on: the end", at(admin.ListOffsetsAfterMilli(ctx, tomorrow, topic)), 20),
			same("largest timestamp within the log", largest >= 0 && largest < 20, true),
		)
		if err != nil {
			return err
		}
		before := kadm.Offsets{}
		before.AddOffset(topic, 0, 8, -1)
		if _, err := admin.DeleteRecords(ctx, before); err != nil {
			return err
		}
		return same("start after deleting", at(admin.ListStartOffsets(ctx, topic)), 8)
	})
}

func adminGroups(ctx context.Context, b *bench) error {
	topic, err := b.topic(ctx, "watched", 1)
	if err != nil {
		return err
	}
	group := b.name("watched")
	if err := b.produce(ctx, topic, "v", 10); err != nil {
		return err
	}
	watched, err := b.member(topic, group)
	if err != nil {
		return err
	}
	if err := eventually(func() error { return same("records", len(watched.values()), 10) }); err != nil {
		return err
	}
	return b.admin(func(admin *kadm.Client) error {
		described, err := admin.DescribeGroups(ctx, group)
		if err != nil {
			return err
		}
		_, deleteErr := admin.DeleteGroup(ctx, group)
		err = all(
			same("state", described[group].State, "Stable"),
			same("members", len(described[group].Members), 1),
			refused("deleting it while it lives", deleteErr, kerr.NonEmptyGroup),
			watched.stop(),
		)
		if err != nil {
			return err
		}
		return groupOffsets(ctx, admin, topic, group)
	})
}

func groupOffsets(ctx context.Context, admin *kadm.Client, topic, group string) error {
	moved := kadm.Offsets{}
	moved.AddOffset(topic, 0, 4, -1)
	if err := admin.CommitAllOffsets(ctx, group, moved); err != nil {
		return err
	}
	offsets, err := admin.FetchOffsets(ctx, group)
	if err != nil {
		return err
	}
	found, _ := offsets.Lookup(topic, 0)
	lags, err := admin.Lag(ctx, group)
	if err != nil {
		return err
	}
	if err := all(same("offset", found.At, 4), same("lag", lags[group].Lag.Total(), 6)); err != nil {
		return err
	}
	if _, err := admin.DeleteGroup(ctx, group); err != nil {
		return err
	}
	groups, err := admin.ListGroups(ctx)
	_, listed := groups[group]
	return all(err, same("still listed", listed, false))
}

// leaderEpochs asks for the end of the epoch that the records carry.
func leaderEpochs(ctx context.Context, b *bench) error {
	topic, err := b.topic(ctx, "epochs", 1)
	if err != nil {
		return err
	}
	if err := b.produce(ctx, topic, "v", 10); err != nil {
		return err
	}
	records, err := b.read(ctx, topic, 10, kgo.FetchMaxWait(time.Second))
	if err != nil {
		return err
	}
	return b.admin(func(admin *kadm.Client) error {
		var request kadm.OffsetForLeaderEpochRequest
		request.Add(topic, 0, records[0].LeaderEpoch)
		ends, err := admin.OffsetForLeaderEpoch(ctx, request)
		if err != nil {
			return err
		}
		end := ends[topic][0]
		return all(end.Err, same("epoch", end.LeaderEpoch, records[0].LeaderEpoch), same("its end", end.EndOffset, 10))
	})
}
