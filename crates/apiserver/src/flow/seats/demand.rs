//! How many seats a level could use.

/// The length of a period in seconds, after which upstream moves seats between levels.
const PERIOD: f64 = 10.0;
/// How much of what was smoothed before remains after a period, as upstream.
const SMOOTHING: f64 = 0.977;

/// The seats that the requests of a level have or wait for, summarized for each period of ten seconds as upstream does
/// before it moves seats between levels. Here it is for metrics only.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Demand {
    /// The most in the last period.
    pub high_watermark: f64,
    /// The average over the time of the last period.
    pub average: f64,
    /// The standard deviation over the time of the last period.
    pub deviation: f64,
    /// Average and deviation together; it rises at once and falls slowly.
    pub smoothed: f64,
    current: Period,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Period {
    seconds: f64,
    most: f64,
    sum: f64,
    squares: f64,
}

impl Period {
    fn add(&mut self, seconds: f64, seats: f64) {
        self.seconds += seconds;
        self.most = self.most.max(seats);
        self.sum += seconds * seats;
        self.squares += seconds * seats * seats;
    }
}

impl Demand {
    /// The demand has been this for some time.
    pub(in crate::flow) fn pass(&mut self, seconds: f64, seats: f64) {
        let rest = PERIOD - self.current.seconds;
        if seconds < rest {
            return self.current.add(seconds, seats);
        }
        self.current.add(rest, seats);
        self.close(1.0);
        // Periods without a change are all alike.
        let whole = ((seconds - rest) / PERIOD).floor();
        if whole > 0.0 {
            self.current.add(PERIOD, seats);
            self.close(whole);
        }
        self.current.add(seconds - rest - whole * PERIOD, seats);
    }

    /// Ends a period, and others like it.
    fn close(&mut self, times: f64) {
        let period = std::mem::take(&mut self.current);
        self.high_watermark = period.most;
        self.average = period.sum / PERIOD;
        let variance = period.squares / PERIOD - self.average * self.average;
        self.deviation = variance.max(0.0).sqrt();
        let envelope = (self.average + self.deviation).min(self.high_watermark);
        let above = (self.smoothed - envelope).max(0.0);
        self.smoothed = envelope + above * SMOOTHING.powf(times);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close_to(number: f64, wanted: f64) -> bool {
        (number - wanted).abs() < 1e-9
    }

    #[test]
    fn periods_are_summarized() {
        let mut demand = Demand::default();
        demand.pass(5.0, 0.0);
        demand.pass(4.0, 8.0);
        assert_eq!(demand.high_watermark, 0.0);
        demand.pass(2.0, 8.0);
        assert_eq!((demand.high_watermark, demand.average), (8.0, 4.0));
        assert!(close_to(demand.deviation, 4.0));
        assert!(close_to(demand.smoothed, 8.0));
        // The rest of this period, two whole ones, and the beginning of another.
        demand.pass(33.0, 0.0);
        assert_eq!((demand.high_watermark, demand.average), (0.0, 0.0));
        let first = (0.8 + (6.4_f64 - 0.64).sqrt()).min(8.0);
        let smoothed = (first + (8.0 - first) * 0.977) * 0.977_f64.powi(2);
        assert!(close_to(demand.smoothed, smoothed), "{demand:?}");
    }
}
