package wal

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSequencerAcknowledgesInOrder(t *testing.T) {
	s := newSequencer(10, 3)
	for want := uint64(10); want < 13; want++ {
		seq, ok := s.dispatch()
		require.True(t, ok)
		require.Equal(t, want, seq)
	}
	_, ok := s.dispatch()
	require.False(t, ok, "the limit of puts in flight holds")

	s.created(12)
	s.created(11)
	_, ok = s.ack()
	require.False(t, ok, "10 is not known yet")
	s.created(10)
	for want := uint64(10); want < 13; want++ {
		seq, ok := s.ack()
		require.True(t, ok)
		require.Equal(t, want, seq)
	}
	_, ok = s.ack()
	require.False(t, ok)
	require.True(t, s.ready())
}

func TestUnknownOutcomeStopsDispatchUntilItIsResolved(t *testing.T) {
	s := newSequencer(0, 4)
	s.dispatch()
	s.dispatch()
	s.unknown(0)
	s.unknown(0) // a second attempt without outcome changes nothing
	_, ok := s.dispatch()
	require.False(t, ok)
	s.created(1) // puts in flight go on
	_, ok = s.ack()
	require.False(t, ok)
	s.created(0)
	_, ok = s.dispatch()
	require.True(t, ok)
	seq, ok := s.ack()
	require.True(t, ok)
	require.Zero(t, seq)
}

func TestStoppedSequencerDoesNothing(t *testing.T) {
	s := newSequencer(0, 4)
	s.dispatch()
	s.dispatch()
	s.created(0)
	s.stop()
	s.created(1)
	_, ok := s.ack()
	require.False(t, ok)
	_, ok = s.dispatch()
	require.False(t, ok)
}

func TestLateNewsOfAnAcknowledgedPositionIsIgnored(t *testing.T) {
	s := newSequencer(0, 1)
	s.dispatch()
	s.created(0)
	s.ack()
	s.unknown(0)
	s.created(0)
	seq, ok := s.dispatch()
	require.True(t, ok)
	require.EqualValues(t, 1, seq)
	_, ok = s.ack()
	require.False(t, ok, "position 1 shares its slot with 0, and must not inherit its news")
}
