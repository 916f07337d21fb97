//! The kinds of tokens, and sets of them.

macro_rules! kinds {
    ($($kind:ident = $name:literal,)*) => {
        /// Kind of a token. The order is that of the grammar: error texts list expected tokens in it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(super) enum Kind {
            $($kind,)*
        }

        impl Kind {
            /// All, in order.
            const ALL: &[Self] = &[$(Self::$kind,)*];

            /// How error texts name it.
            pub(super) fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    EqualsEquals = "'=='",
    NotEquals = "'!='",
    In = "'in'",
    Less = "'<'",
    LessEquals = "'<='",
    GreaterEquals = "'>='",
    Greater = "'>'",
    And = "'&&'",
    Or = "'||'",
    LeftBracket = "'['",
    RightBracket = "']'",
    LeftBrace = "'{'",
    RightBrace = "'}'",
    LeftParen = "'('",
    RightParen = "')'",
    Dot = "'.'",
    Comma = "','",
    Minus = "'-'",
    Exclam = "'!'",
    Question = "'?'",
    Colon = "':'",
    Plus = "'+'",
    Star = "'*'",
    Slash = "'/'",
    Percent = "'%'",
    True = "'true'",
    False = "'false'",
    Null = "'null'",
    Float = "NUM_FLOAT",
    Int = "NUM_INT",
    Uint = "NUM_UINT",
    String = "STRING",
    Bytes = "BYTES",
    Ident = "IDENTIFIER",
    EscapedIdent = "ESC_IDENTIFIER",
    End = "<EOF>",
}

/// A set of token kinds; it can also say that the rule may end here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Set(u64);

const EPSILON: u64 = 1 << 63;

impl Set {
    pub(super) const fn of(kinds: &[Kind]) -> Self {
        let mut bits = 0;
        let mut i = 0;
        while i < kinds.len() {
            bits |= 1 << kinds[i] as u64;
            i += 1;
        }
        Self(bits)
    }

    pub(super) const fn or_end(self) -> Self {
        Self(self.0 | EPSILON)
    }

    pub(super) const fn with(self, kind: Kind) -> Self {
        Self(self.0 | 1 << kind as u64)
    }

    pub(super) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn without_end(self) -> Self {
        Self(self.0 & !EPSILON)
    }

    /// Whether the rule may end here.
    pub(super) fn may_end(self) -> bool {
        self.0 & EPSILON != 0
    }

    pub(super) fn has(self, kind: Kind) -> bool {
        self.0 >> kind as u64 & 1 == 1
    }

    /// As error texts list it.
    pub(super) fn text(self) -> String {
        let names: Vec<_> = Kind::ALL
            .iter()
            .copied()
            .filter(|kind| self.has(*kind))
            .map(Kind::name)
            .collect();
        if names.len() == 1 {
            names[0].to_owned()
        } else {
            format!("{{{}}}", names.join(", "))
        }
    }
}

/// Tokens that an expression can start with, without `!` and `-` operators in front of a member.
pub(super) const PRIMARY: Set = Set::of(&[
    Kind::LeftBracket,
    Kind::LeftBrace,
    Kind::LeftParen,
    Kind::Dot,
    Kind::Minus,
    Kind::True,
    Kind::False,
    Kind::Null,
    Kind::Float,
    Kind::Int,
    Kind::Uint,
    Kind::String,
    Kind::Bytes,
    Kind::Ident,
]);
/// Tokens that an expression can start with.
pub(super) const EXPR: Set = PRIMARY.with(Kind::Exclam);
/// Tokens that an element of a list or an argument can start with.
pub(super) const OPTIONAL: Set = EXPR.with(Kind::Question);
/// Only the end of a rule.
pub(super) const END: Set = Set(EPSILON);
