"""A made-up process and tiny layouts for tests of rule sentences."""
# ruff: noqa: E501 (a case stands on one line)

from orienteer.environments.layout.tasks import Rule, RuleTask

NAMES = [
    "nwell",
    "dnwell",
    "pwell",
    "diff",
    "tap",
    "poly",
    "nsdm",
    "psdm",
    "licon",
    "li1",
    "mcon",
    "met1",
    "via1",
    "met2",
    "capm",
    "hvi",
    "sab",
    "resistor",
    "pad",
    "nfill",
]
LAYERS = {name: (number, 0) for number, name in enumerate(NAMES, 1)}


def task(*texts, layers=LAYERS, description="", title="own rules"):
    rules = tuple(Rule(text, f"R.{i}") for i, text in enumerate(texts, 1))
    return RuleTask("own", title, description, dict(layers), rules, tuple(r.category for r in rules))


def box(x1, y1, x2, y2):
    return [(x1, y1), (x1, y2), (x2, y2), (x2, y1)]


#: Sentences, the form that each is read as, and code of the first deck.
READ = [
    # width
    ("Minimum width of poly is 0.18 um", "width", "poly.width(0.18.um, euclidian)"),
    ("met1 width shall be at least 230nm", "width", "met1.width(0.23.um, euclidian)"),
    ("Poly must not be narrower than 0.15 µm", "width", "poly.width(0.15.um, euclidian)"),
    ("met1 lines narrower than 0.14 um are prohibited", "width", "met1.width(0.14.um, euclidian)"),
    ("Poly must be at least 0.15um wide", "width", "poly.width(0.15.um, euclidian)"),
    ("n-well width (min): 0.84 µm", "width", "nwell.width(0.84.um, euclidian)"),
    ("The minimum line width of metal 1 is 0.14 um.", "width", "met1.width(0.14.um, euclidian)"),
    ("met1 width 0,14 um", "width", "met1.width(0.14.um, euclidian)"),
    ("Minimum channel length is 0.15um", "width", "poly.and(diff).width(0.15.um, euclidian)"),
    ("Max width of met1 is 10um", "width", "met1.sized(-5.0.um).sized(5.0.um)"),
    ("Poly shapes wider than 10um are not allowed", "width", "poly.sized(-5.0.um).sized(5.0.um)"),
    ("Width of (diff not poly) 0.2um", "width", "diff.not(poly).width(0.2.um, euclidian)"),
    ("Width of tap outside hvi 0.15um", "width", "tap.not(hvi).width(0.15.um, euclidian)"),
    ("Min. nwell width = 0.84 um. Rule exempt inside hvi.", "width", "nwell.not(hvi).width(0.84.um, euclidian)"),
    ("Minimum channel width (Diff And Poly) except for FETs inside hvi: 0.42um", "width", "poly.and(diff).not(hvi).width(0.42.um, euclidian)"),
    ("Min.Metal1 width 0.14um", "width", "met1.width(0.14.um, euclidian)"),
    ("Rule M1.a: met1 width 0.14um", "width", "met1.width(0.14.um, euclidian)"),
    ("MINIMUM WIDTH OF POLY IS 0.15UM", "width", "poly.width(0.15.um, euclidian)"),
    # space of one layer
    ("Min spacing of metal1 to metal1 0.14um", "space", "met1.space(0.14.um, euclidian)"),
    ("Metal1 spacing >= 140 nm", "space", "met1.space(0.14.um, euclidian)"),
    ("Space of poly less than 0.2um is forbidden", "space", "poly.space(0.2.um, euclidian)"),
    ("Gaps smaller than 0.14um in met1 are not permitted", "space", "met1.space(0.14.um, euclidian)"),
    ("Min. poly space or notch 0.21um", "space", "poly.space(0.21.um, euclidian)"),
    ("Minimum notch of met1 is 0.2um", "space", "met1.notch(0.2.um, euclidian)"),
    ("Minimum space between resistors is 0.4 um", "space", "resistor.isolated(0.4.um, euclidian)"),
    ("The spacing between adjacent met1 shapes shall be no smaller than 0.14um.", "space", "met1.space(0.14.um"),
    # of two
    ("poly to diff spacing must be >= 0.075 um", "separation", "poly.separation(diff, 0.075.um, euclidian)"),
    ("Spacing of poly on field to diff is 0.075um", "separation", "poly.not(diff).separation(diff, 0.075.um, "),
    ("Diff may not be closer than 0.34um to nwell", "separation", "diff.separation(nwell, 0.34.um, euclidian)"),
    ("Spacing of licon on diff or tap to poly on diff 0.055um", "separation", "licon.and(diff.or(tap)).separation(poly.and(diff), "),
    ("Non-abutting diff to tap spacing is 0.27um", "separation", "diff.separation(tap.not_interacting(diff), 0.27.um"),
    ("Minimum spacing between dnwell and unrelated nwell 4.5 um", "separation", "separation(nwell.not_interacting(dnwell), "),
    ("Min spacing, no overlap, between capm and via1: 0.2um", "separation", "capm.and(via1)"),
    ("minimum space of n+ diff to nwell 0.34um", "separation", "diff.and(nsdm).separation(nwell, 0.34.um, euclidian)"),
    # with conditions
    ("Minimum metal2 spacing is 0.5 um if width > 10 um", "wide space", "met2.sized(-5.0.um).sized(5.0.um)"),
    ("Minimum spacing of wide met1 (width >= 3 um) is 0.28 um", "wide space", "met1.sized(-1.5.um).sized(1.5.um)"),
    ("Minimum space of met1 when parallel run length is greater than 5um is 0.3um", "wide space", "met1.space(0.3.um, projection, projecting > 5.0.um)"),
    ("Spacing of met1 wider than 3um to met1 must be at least 0.28um", "wide space", "isolated(0.28.um, euclidian)"),
    # enclosure
    ("Enclosure of licon by diff 0.04um", "enclosure", "licon.enclosed(diff, 0.04.um, euclidian)"),
    ("Mcon must be enclosed by met1 by at least 0.03 um", "enclosure", "mcon.not(met1)"),
    ("met1 overlap of via1 >= 0.055um", "enclosure", "via1.enclosed(met1, 0.055.um, euclidian)"),
    ("met2 must surround via1 by 0.05um", "enclosure", "via1.enclosed(met2, 0.05.um, euclidian)"),
    ("mcon must be inside met1 by 30nm", "enclosure", "mcon.enclosed(met1, 0.03.um, euclidian)"),
    ("Minimum enclosure of nwell hole by dnwell is 1.03um", "enclosure", "nwell.holes.enclosed(dnwell, 1.03.um"),
    ("Met1 enclosure of via1 on two opposite sides 0.085um", "enclosure", "projection, two_opposite_sides_allowed)"),
    ("Enclosure of licon by one of two adjacent li1 sides 0.08um", "enclosure", "one_side_allowed, two_opposite_sides_allowed)"),
    ("li1 enclosure of licon on one side 0.08um", "enclosure", "one_side_allowed, two_sides_allowed, three_sides_allowed)"),
    ("diff must be enclosed by nwell by at least 0.18 um, except outside hvi", "enclosure", "diff.and(hvi).not(nwell)"),
    ("Min enclosure of diff by nwell (exclude coincident edges) 0.18um", "enclosure", "diff.edges.not(nwell.edges).enclosed(nwell.edges, "),
    ("Minimum overlap of met1 around via1: 0.055um", "enclosure", "via1.enclosed(met1, 0.055.um, euclidian)"),
    # extension, overlap
    ("Min. extension of poly past diff: 0.13um", "extension", "poly.enclosing(diff, 0.13.um, euclidian)"),
    ("Poly must extend beyond diff by at least 130 nm", "extension", "poly.enclosing(diff, 0.13.um, euclidian)"),
    ("Minimum poly end cap 0.13um", "extension", "poly.enclosing(diff, 0.13.um, euclidian)"),
    ("diff overhang of gate 0.25um", "extension", "diff.enclosing(poly.and(diff), 0.25.um, euclidian)"),
    ("Minimum overlap of sab and poly is 0.2um", "overlap", "sab.overlap(poly, 0.2.um, euclidian)"),
    ("Minimum and maximum overlap of sab and poly is 0.2um", "overlap", "sab.and(poly).width(0.2.um, euclidian)"),
    # area, size, length
    ("Min area of met1 (um^2) 0.083", "area", "met1.with_area(nil, 0.083.um2)"),
    ("Minimum area of poly is 0.1 square microns", "area", "poly.with_area(nil, 0.1.um2)"),
    ("Max area of capm is 900 um^2", "area", "capm.with_area(900.000001.um2, nil)"),
    ("Min area of metal1 holes: 0.14um²", "hole area", "met1.holes.with_area(nil, 0.14.um2)"),
    ("Min. and max. width of licon: 0.17 um", "size", "licon.edges.without_length(0.17.um)"),
    ("via1 must be exactly 0.15 x 0.15 um", "size", "via1.edges.without_length(0.15.um)"),
    ("Maximum length of poly is 100um", "length", "poly.with_bbox_max(100.001.um, nil)"),
    ("Minimum edge length of met1 is 0.05um", "length", "met1.edges.with_length(nil, 0.05.um)"),
    # without a number
    ("Licon must be inside diff or poly", "inside", "licon.not(diff.or(poly))"),
    ("No licon outside diff", "inside", "licon.not(diff)"),
    ("licon is not allowed over gate", "apart", "licon.and(poly.and(diff))"),
    ("nwell and dnwell must not touch", "apart", "nwell.interacting(dnwell)"),
    ("psdm must not straddle nwell", "apart", "psdm.not_outside(nwell).not_inside(nwell)"),
    ("abutting of nsdm and psdm is not allowed", "apart", "nsdm.edges.and(psdm.edges)"),
    ("Every tap must contain at least one licon", "contains", "tap.not_covering(licon)"),
    # directions, grid, density, antenna
    ("met1 edges must be at 45 or 90 degrees", "angle", "without_angle(45).without_angle(-45)"),
    ("gate must be orthogonal", "angle", "poly.and(diff).edges.without_angle(0).without_angle(90)"),
    ("diff must be rectangular", "rectangle", "diff.non_rectangles"),
    ("All met1 vertices must be on a grid of 0.005um", "grid", "met1.ongrid(0.005.um)"),
    ("Met1 density must be between 30% and 70% in a 100um x 100um window", "density", "met1.without_density(0.3 .. 0.7, tile_size(100.0.um))"),
    ("Max. global poly density [%]: 50", "density", "> 0.5"),
    ("Max antenna ratio of poly to gate is 400", "antenna", "antenna_check(rule_r_1_gate, poly, 400.0)"),
    # two rules in one sentence
    ("Poly minimum width is 0.2 um and minimum space 0.3 um", "width and space", "poly.space(0.3.um, euclidian)"),
    ("nwell and dnwell should not overlap, and separation between nwell and dnwell must be >= 5.0 µm.", "apart and separation", "nwell.and(dnwell)"),
]  # fmt: skip
