package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var clientCases = []testCase{
	{"codecs", codecs},
	{"idempotence", idempotence},
	{"acks", acks},
	{"headers-and-nulls", headersAndNulls},
	{"long-poll", longPoll},
	{"group-range", groupWith(kgo.Balancers(kgo.RangeBalancer()))},
	{"group-round-robin", groupWith(kgo.Balancers(kgo.RoundRobinBalancer()))},
	{"group-sticky", groupWith(kgo.Balancers(kgo.StickyBalancer()))},
	{"group-cooperative", groupWith(kgo.Balancers(kgo.CooperativeStickyBalancer()))},
	{"group-server-side", groupWith(kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())},
}

func codecs(ctx context.Context, b *bench) error {
	topic, err := b.topic(ctx, "codecs", 1)
	if err != nil {
		return err
	}
	var expected []string
	named := []struct {
		name  string
		codec kgo.CompressionCodec
	}{
		{"none", kgo.NoCompression()}, {"gzip", kgo.GzipCompression()}, {"snappy", kgo.SnappyCompression()},
		{"lz4", kgo.Lz4Compression()}, {"zstd", kgo.ZstdCompression()},
	}
	for _, each := range named {
		if err := b.produce(ctx, topic, each.name+"-", 500, kgo.ProducerBatchCompression(each.codec)); err != nil {
			return err
		}
		expected = append(expected, numbered(each.name+"-", 500)...)
	}
	records, err := b.read(ctx, topic, len(expected))
	return all(err, same("values", values(records), expected))
}

// idempotence is franz-go's default; small batches make many sequences.
func idempotence(ctx context.Context, b *bench) error {
	topic, err := b.topic(ctx, "idempotence", 1)
	if err != nil {
		return err
	}
	if err := b.produce(ctx, topic, "v", 3000, kgo.ProducerBatchMaxBytes(1024), kgo.MaxBufferedRecords(3000)); err != nil {
		return err
	}
	records, err := b.read(ctx, topic, 3000)
	return all(err, same("values", values(records), numbered("v", 3000)))
}

func acks(ctx context.Context, b *bench) error {
	topic, err := b.topic(ctx, "acks", 1)
	if err != nil {
		return err
	}
	for _, acks := range []kgo.Acks{kgo.NoAck(), kgo.LeaderAck()} {
		options := []kgo.Opt{kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite()}
		if err := b.produce(ctx, topic, "v", 50, options...); err != nil {
			return err
		}
	}
	records, err := b.read(ctx, topic, 100)
	return all(err, same("values", values(records), slices.Concat(numbered("v", 50), numbered("v", 50))))
}

func headersAndNulls(ctx context.Context, b *bench) error {
	topic, err := b.topic(ctx, "headers", 1)
	if err != nil {
		return err
	}
	client, err := b.client()
	if err != nil {
		return err
	}
	defer client.Close()
	stamp := time.Now().Add(-5 * time.Second).Truncate(time.Millisecond)
	headers := []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}}
	sent := []*kgo.Record{
		{Topic: topic, Key: []byte("k"), Value: []byte("v"), Headers: headers, Timestamp: stamp},
		{Topic: topic, Key: []byte("k")},
		{Topic: topic, Value: []byte("v")},
	}
	if err := client.ProduceSync(ctx, sent...).FirstErr(); err != nil {
		return err
	}
	records, err := b.read(ctx, topic, 3)
	if err != nil {
		return err
	}
	return all(
		same("headers", records[0].Headers, headers),
		same("timestamp", records[0].Timestamp.UnixMilli(), stamp.UnixMilli()),
		same("a null value", records[1].Value == nil && records[1].Key != nil, true),
		same("a null key", records[2].Key == nil && records[2].Value != nil, true),
	)
}

// longPoll checks that a waiting fetch is answered when a record comes, long before its own limit.
func longPoll(ctx context.Context, b *bench) error {
	topic, err := b.topic(ctx, "long-poll", 1)
	if err != nil {
		return err
	}
	consumer, err := b.client(kgo.ConsumeTopics(topic), kgo.FetchMaxWait(5*time.Second),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer consumer.Close()
	producer, err := b.client(kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	defer producer.Close()
	var waits []time.Duration
	for n := range 10 {
		time.Sleep(50 * time.Millisecond)
		begun := time.Now()
		record := &kgo.Record{Topic: topic, Value: fmt.Append(nil, n)}
		if err := producer.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
		if _, err := poll(ctx, consumer, 1); err != nil {
			return err
		}
		waits = append(waits, time.Since(begun))
	}
	slices.Sort(waits)
	return same(fmt.Sprintf("half of the waits are below 200 ms: %v", waits), waits[5] < 200*time.Millisecond, true)
}

// groupWith makes the case of a group whose members come and go under these options.
func groupWith(options ...kgo.Opt) func(context.Context, *bench) error {
	return func(ctx context.Context, b *bench) error {
		topic, err := b.topic(ctx, "group", 4)
		if err != nil {
			return err
		}
		return groupLife(ctx, b, topic, b.name("group"), options)
	}
}

func groupLife(ctx context.Context, b *bench, topic, group string, options []kgo.Opt) error {
	if err := b.produce(ctx, topic, "a", 100); err != nil {
		return err
	}
	first, err := b.member(topic, group, options...)
	if err != nil {
		return err
	}
	if err := eventually(func() error { return same("the first's records", len(first.values()), 100) }); err != nil {
		return err
	}
	second, err := b.member(topic, group, options...)
	if err != nil {
		return err
	}
	spread := func() error {
		return same("shares", []int{first.share(), second.share()}, []int{2, 2})
	}
	if err := all(eventually(spread), b.produce(ctx, topic, "b", 100)); err != nil {
		return err
	}
	both := func() []string { return slices.Concat(first.values(), second.values()) }
	if err := eventually(func() error { return same("records", len(both()), 200) }); err != nil {
		return err
	}
	if err := first.stop(); err != nil {
		return err
	}
	if err := eventually(func() error { return same("the second's share", second.share(), 4) }); err != nil {
		return err
	}
	seen, expected := both(), slices.Concat(numbered("a", 100), numbered("b", 100))
	slices.Sort(seen)
	slices.Sort(expected)
	if err := all(second.stop(), same("each value once", seen, expected)); err != nil {
		return err
	}
	return resumes(ctx, b, topic, group, options)
}

// resumes checks that a later member reads only records after the commits.
func resumes(ctx context.Context, b *bench, topic, group string, options []kgo.Opt) error {
	if err := b.produce(ctx, topic, "late", 5); err != nil {
		return err
	}
	third, err := b.member(topic, group, options...)
	if err != nil {
		return err
	}
	err = eventually(func() error {
		seen := third.values()
		slices.Sort(seen)
		return same("what is new", seen, numbered("late", 5))
	})
	return all(err, third.stop())
}
